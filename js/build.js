// Builds ../widget/static/widget.js and widget.css (deterministic, minified). Not the types (types.js), not the tests.
// `--dev` builds the harness into dev/build; `--watch` rebuilds on change.
import { readFileSync } from "node:fs";
import { context } from "esbuild";
import { paletteCss } from "./src/palette.js";

const litLicence = readFileSync(new URL("node_modules/lit-html/LICENSE", import.meta.url), "utf8");
const flags = new Set(process.argv.slice(2));

/**
 * The colours are computed here, so that d3's tables are not part of the bundle.
 * @type {import("esbuild").Plugin}
 */
const palette = {
  name: "palette",
  setup(build) {
    build.onResolve({ filter: /^palette:css$/ }, () => ({ path: "palette.css", namespace: "palette" }));
    build.onLoad({ filter: /.*/, namespace: "palette" }, () => ({ contents: paletteCss(), loader: "css" }));
  },
};

const builder = await context({
  entryPoints: flags.has("--dev")
    ? [{ in: "dev/harness.js", out: "harness" }]
    : [
        { in: "src/widget.js", out: "widget" },
        { in: "src/style/widget.css", out: "widget" },
      ],
  outdir: flags.has("--dev") ? "dev/build" : "../widget/static",
  absWorkingDir: import.meta.dirname,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022", "chrome120", "firefox121", "safari17"],
  // lit-html's notice is kept at the end of the bundle.
  legalComments: "eof",
  banner: {
    js: "/* genscope front end, built from js/ by `npm run build`. Bundles lit-html (BSD-3-Clause, notice at the end). */",
    css: "/* genscope front end, built from js/. Colour ramps computed with d3-scale-chromatic (ISC) from ColorBrewer (colorbrewer2.org, Apache-2.0). */",
  },
  footer: { js: `/*! lit-html:\n\n${litLicence}*/` },
  plugins: [palette],
  logLevel: "info",
});
if (flags.has("--watch")) {
  await builder.watch();
} else {
  await builder.rebuild();
  await builder.dispose();
}
