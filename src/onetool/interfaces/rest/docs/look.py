"""How the page looks: by light and by night, on a phone and on paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d1f23; --faint: #5d6068; --paper: #fcfcfa; --soft: #f3f2ed; --line: #dddbd3;
  --get: #1a6b4a; --post: #1f5fa8; --put: #8a5a00; --patch: #6b3fa0; --delete: #a8322a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e4de; --faint: #a2a4ab; --paper: #17181b; --soft: #202227; --line: #383b42;
    --get: #5cc79a; --post: #79b0ee; --put: #e0b050; --patch: #bf9bea; --delete: #ee8a82 }
}
* { box-sizing: border-box }
html { scroll-padding-top: 1rem; scroll-behavior: smooth }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto } }
body { font: 16px/1.6 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0;
  display: grid; grid-template-columns: 17rem minmax(0, 1fr) }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1.75rem 1rem 2rem 1.5rem;
  border-right: 1px solid var(--line); font-size: .88rem }
nav h2 { font-size: .75rem; letter-spacing: .06em; text-transform: uppercase; color: var(--faint);
  margin: 1.4rem 0 .3rem }
nav ul { list-style: none; margin: 0; padding: 0 } nav li { margin: .1rem 0; break-inside: avoid }
nav h2 a { margin-left: -.4rem }
nav a { display: block; padding: .12rem .4rem; border-radius: 5px; color: inherit; text-decoration: none }
nav a:hover, nav a:focus-visible { background: var(--soft) }
main { padding: 2.25rem clamp(1.1rem, 4vw, 3.5rem) 6rem; max-width: 62rem }
h1 { font-size: 1.75rem; margin: 0 0 .75rem } h2 { font-size: 1.3rem; margin: 3rem 0 .5rem }
h3 { font-size: 1.05rem; margin: 0 }
h4 { font-size: .82rem; color: var(--faint); margin: 1.1rem 0 .3rem; font-weight: 600 }
article { border: 1px solid var(--line); border-radius: 10px; margin: 1rem 0; padding: 1rem 1.2rem }
article p { margin: .5rem 0 }
.address { font: 14px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; margin: .15rem 0 .4rem }
.method { font: 700 12px/1 ui-monospace, monospace; letter-spacing: .03em; border: 1px solid; border-radius: 5px;
  padding: .18rem .42rem; margin-right: .5rem }
.get { color: var(--get) } .post { color: var(--post) } .put { color: var(--put) } .patch { color: var(--patch) }
.delete { color: var(--delete) }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
td, th { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0; border-top: 1px solid var(--line) }
tr:first-child > * { border-top: 0 } th { font-weight: 400; width: 13.5rem }
.scroll { overflow-x: auto }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; margin: .4rem 0;
  font: 13px/1.55 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere }
code { font-family: ui-monospace, monospace; font-size: .92em }
summary { cursor: pointer; color: var(--faint); font-size: .9rem; margin-top: .7rem }
a { color: var(--post) } small { color: var(--faint) }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--post); outline-offset: 2px }
@media (max-width: 54rem) { body { display: block } nav { position: static; height: auto; border: 0;
  border-bottom: 1px solid var(--line); padding: 1.2rem } nav ul { columns: 2 }
  th { width: 9.5rem; overflow-wrap: anywhere } }
@media print { nav { display: none } body { display: block } article { break-inside: avoid } }
"""
