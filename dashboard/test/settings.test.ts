import { describe, expect, it } from "vitest";
import { numberFrom, wanted } from "../src/settings";

const SETTINGS = [
  { key: "log.files_max", value: 5, origin: "default", reloads: true },
  { key: "storage.bytes_max", value: null, origin: "config.yaml", reloads: true },
  { key: "network.listen", value: ["/ip4/0.0.0.0/tcp/4001"], origin: "default", reloads: false },
];

describe("what a person types for a setting", () => {
  it("is a number, or no limit, and nothing else", () => {
    expect(["6", " 1.5 ", "2e9", "-1", "", " "].map(numberFrom)).toEqual(
      [6, 1.5, 2e9, -1, null, null]);
    for (const text of ["six", "1 000", "0x10", "1,5", "Infinity", "NaN", "1.2.3", "true"]) {
      expect(numberFrom(text), text).toBeUndefined();
    }
  });

  it("is a change only where it differs, and only of what may change", () => {
    const words = {
      "log.files_max": "5", "storage.bytes_max": "2e9", "network.listen": "7", unknown: "8",
    };
    expect(wanted(SETTINGS, words)).toEqual({ changes: { "storage.bytes_max": 2e9 }, faults: [] });
    expect(wanted(SETTINGS, { "log.files_max": "" }).changes).toEqual({ "log.files_max": null });
    expect(wanted(SETTINGS, { "log.files_max": "six" }).faults).toEqual(["log.files_max"]);
  });
});
