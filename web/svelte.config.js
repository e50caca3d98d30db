// Short names of scoped styles: they stand in nearly every element. Two files with the same one would share styles.
const files = new Map();
function cssHash({ hash, filename, css }) {
  const name = `s${hash(filename?.replace(/^.*\/src\//, "") ?? css).slice(0, 3)}`;
  if (files.has(name) && files.get(name) !== filename)
    throw new Error(`${filename} and ${files.get(name)} have the same name of styles, ${name}`);
  files.set(name, filename);
  return name;
}

export default { compilerOptions: { runes: true, cssHash } };
