"""Asks the modules of the page that need no browser: they are bundled, and run by Node."""

import json
import subprocess

import pytest
from tests import npm
from web.build import NODE, WEB

PACKAGES = NODE / "node_modules"
DRIVER = """
import {{ codeOf, conditionCode, renamedIn, valueCode }} from {recipe_recipe};
import {{ recipeOf }} from {recipe_read};
import {{ callsOf, holds, resolved }} from {recipe_values};
import {{ keyOf, madeIn, taken, written }} from {recipe_answers};
import {{ unknownNames }} from {recipe_text};
import {{ textWithoutSecrets }} from {form_secrets};
import {{ offersAt }} from {editor_code_names};
const whole = (recipe) => ({{ ...recipe, steps: recipe.steps.map((one) => ({{ each: undefined, ...one }})) }});
const doing = {{
  both: ({{ recipe, code, inputs }}) => {{
    const text = code ?? codeOf(whole(recipe), inputs);
    return {{ code: text, recipe: recipeOf(text, inputs) }};
  }},
  renamed: ({{ recipe, from, to, inputs }}) => renamedIn(whole(recipe), from, to, inputs),
  unknown: ({{ value, names }}) => unknownNames(value, new Set(names)),
  value: ({{ value, known }}) => resolved(value, new Set(Object.keys(known)), known),
  valueCode: ({{ value, known }}) => valueCode(value, new Set(Object.keys(known))),
  condition: ({{ value, known }}) => holds(value, new Set(Object.keys(known)), known),
  conditionCode: ({{ value, known }}) => conditionCode(value, new Set(Object.keys(known))),
  calls: ({{ step, known }}) => callsOf(step, new Set([...Object.keys(known), "item"]), known),
  key: ({{ step, known }}) => keyOf({{ each: undefined, ...step }}, new Set(Object.keys(known)), known),
  kept: ({{ answers, most }}) => {{
    const {{ text, without }} = written(Object.entries(answers), most);
    return {{ size: text.length, without, read: Object.fromEntries(JSON.parse(text)) }};
  }},
  taken: ({{ answer, calls }}) => {{
    const made = madeIn(answer);
    return [calls.map((call) => taken(made, call) ?? null), made];
  }},
  withoutSecrets: ({{ text, schema }}) => textWithoutSecrets(text, schema),
  offers: ({{ code, names, isAsked }}) => offersAt(code, names, isAsked),
}};
const asked = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
const answers = asked.map(([what, given]) => {{
  try {{
    return doing[what](given) ?? null;
  }} catch (error) {{
    if (!error.key) throw error;
    return {{ failed: error.key }};
  }}
}});
console.log(JSON.stringify(answers));
"""
MODULES = (
    "recipe/recipe",
    "recipe/read",
    "recipe/values",
    "recipe/answers",
    "recipe/text",
    "form/secrets",
    "editor/code-names",
)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Asks the page's own functions."""
    if not (PACKAGES / "rolldown").exists():
        pytest.skip("RECIPES ARE NOT TESTED: the page's packages are not installed (`make web` does)")
    return asker(tmp_path_factory.mktemp("recipes"))


def asker(folder):
    lib = WEB / "src" / "lib"
    named = {name.replace("/", "_").replace("-", "_"): json.dumps(str(lib / f"{name}.ts")) for name in MODULES}
    (folder / "driver.ts").write_text(DRIVER.format(**named), encoding="utf-8")
    bundle = [
        *npm.node(),
        PACKAGES / "rolldown" / "bin" / "cli.mjs",
        "driver.ts",
        "--platform",
        "node",
        "--format",
        "cjs",
    ]
    made = subprocess.run(
        [*map(str, bundle), "-o", "driver.cjs"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr

    def ask(what, *given):
        done = subprocess.run(
            [*npm.node(), "driver.cjs"],
            cwd=folder,
            input=json.dumps([[what, one] for one in given]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask
