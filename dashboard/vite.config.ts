/**
 * Builds both pages of this folder. Each loads nothing from elsewhere, and weighs at most 150 kB on
 * the wire.
 *
 * The dashboard: all but index.html lies below dashboard/, where the daemon's door serves it
 * without a token. With `--mode report` the page of a simulated run: one script and one style,
 * which `simnet report` writes into a file with what there is to tell.
 */

import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";
import { codings } from "../wasm_worker/codings.ts";
import { licenses } from "../wasm_worker/licenses.ts";

const WIRE_BYTES_MAX = 150_000;

const shared = {
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  test: { include: ["test/**/*.test.ts"] },
};

const dashboard = {
  plugins: [
    licenses(import.meta.dirname, "dashboard/LICENSES.txt"),
    codings("dashboard", WIRE_BYTES_MAX),
  ],
  build: {
    outDir: "build/site",  // `make dashboard` takes it from there, once it is whole
    emptyOutDir: true,
    assetsDir: "dashboard",
    assetsInlineLimit: 0,  // its policy allows no data: addresses
    modulePreload: { polyfill: false },
    target: "es2022",
  },
};

const report = {
  plugins: [licenses(import.meta.dirname), onePage()],
  build: {
    outDir: "build/report",
    emptyOutDir: true,
    cssCodeSplit: false,
    target: "es2022",
    rolldownOptions: {
      input: "src/report/main.tsx",
      output: {
        format: "iife", entryFileNames: "report.js", assetFileNames: "report[extname]",
      },
    },
  },
};

/** Stops a build that weighs too much, or that would end the element which it is to stand in. */
function onePage(): Plugin {
  return {
    name: "one page",
    apply: "build",
    writeBundle(_, bundle) {
      let wireBytes = 0;
      for (const file of Object.values(bundle)) {
        const text = file.type === "chunk" ? file.code : String(file.source);
        if (/\.(js|css)$/.test(file.fileName) && /<\/(script|style)|<!--/i.test(text)) {
          throw new Error(`${file.fileName} cannot stand in a page`);
        }
        wireBytes += gzipSync(text, { level: 9 }).length;
      }
      if (wireBytes > WIRE_BYTES_MAX) {
        throw new Error(`the report is too heavy: ${wireBytes} bytes`);
      }
      console.log(`report: ${Math.ceil(wireBytes / 1e3)} kB compressed`);
    },
  };
}

export default defineConfig(({ mode }) => ({
  ...shared, ...(mode === "report" ? report : dashboard),
} as import("vitest/config").ViteUserConfig));
