/**
 * The licenses of all packages that the page may contain, as one file beside it: each text once,
 * under the names of those that come with it.
 */

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

const FILE = "LICENSES.txt";

interface Locked {
  readonly version: string;
  readonly license?: string;
  readonly dev?: boolean;
}

/** Of what `folder` locks, but for what only builds and tests. Throws for one without a license. */
export function licensesOf(folder: string): string {
  const lock = JSON.parse(readFileSync(join(folder, "package-lock.json"), "utf8")) as {
    packages: Record<string, Locked>;
  };
  const namesByText = new Map<string, string[]>();
  for (const [path, { version, license, dev }] of Object.entries(lock.packages)) {
    if (path === "" || dev) continue;
    const name = path.replace(/^.*node_modules\//, "");
    if (license === undefined) throw new Error(`${name} ${version} tells no license`);
    const text = textsIn(join(folder, path)) || `(no text comes with it: see ${license})\n`;
    const names = namesByText.get(text) ?? [];
    namesByText.set(text, [...names, `${name} ${version}, ${license}`]);
  }
  return [...namesByText].map(([text, names]) => `${names.join("\n")}\n\n${text}`)
    .join(`\n${"-".repeat(72)}\n\n`);
}

function textsIn(folder: string): string {
  return readdirSync(folder).sort().filter((name) => /^(licen[cs]e|notice|copying)/i.test(name))
    .map((name) => `${readFileSync(join(folder, name), "utf8").trim()}\n`).join("\n");
}

export function licenses(folder = import.meta.dirname, fileName = FILE): Plugin {
  return {
    name: "licenses",
    apply: "build",
    generateBundle() {
      this.emitFile({ type: "asset", fileName, source: licensesOf(folder) });
    },
  };
}
