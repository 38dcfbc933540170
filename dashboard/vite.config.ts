/**
 * Builds the dashboard: a few files that load nothing from elsewhere, at most 150 kB on the wire.
 *
 * All but index.html lie below dashboard/, where the daemon's door serves them without a token.
 */

import { defineConfig } from "vite";
import { codings } from "../wasm_worker/codings.ts";
import { licenses } from "../wasm_worker/licenses.ts";

const WIRE_BYTES_MAX = 150_000;

export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
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
  test: { include: ["test/**/*.test.ts"] },
} as import("vitest/config").ViteUserConfig);
