import { describe, expect, it, vi } from "vitest";
import { givenIn, takeToken } from "../src/token";

const TOKEN = "1a".repeat(32);

function kept(...pairs: [string, string][]): Storage {
  const values = new Map(pairs);
  return {
    getItem: (name: string) => values.get(name) ?? null,
    setItem: (name: string, value: string) => void values.set(name, value),
    removeItem: (name: string) => void values.delete(name),
    clear: () => values.clear(), key: () => null, length: 0,
  };
}

describe("the token", () => {
  it("comes in the fragment, leaves it, and outlives a reload", () => {
    const storage = kept(), clear = vi.fn();
    expect(takeToken({ hash: `#token=${TOKEN}`, pathname: "/" }, storage, clear)).toBe(TOKEN);
    expect(clear).toHaveBeenCalledOnce();
    expect(takeToken({ hash: "", pathname: "/" }, storage, clear)).toBe(TOKEN);
    expect(clear).toHaveBeenCalledOnce();
  });

  it("that is none is cleared too, and does not drive out a good one", () => {
    const storage = kept(), clear = vi.fn();
    takeToken({ hash: `#token=${TOKEN}`, pathname: "/" }, storage, clear);
    for (const wrong of ["", "abc", TOKEN.toUpperCase(), `${TOKEN}0`, "<script>"]) {
      const hash = `#token=${encodeURIComponent(wrong)}`;
      expect(takeToken({ hash, pathname: "/" }, storage, clear)).toBe(TOKEN);
    }
    expect(clear).toHaveBeenCalledTimes(6);
  });

  it("is given by an address that names one, and by no link within the page", () => {
    expect(["#main", "", "#", "#token"].map(givenIn)).toEqual([null, null, null, ""]);
    expect(givenIn(`#token=${TOKEN}`)).toBe(TOKEN);
  });

  it("is asked for where there is none, or the browser stores nothing", () => {
    const clear = vi.fn();
    expect(takeToken({ hash: "", pathname: "/" }, null, clear)).toBeNull();
    expect(takeToken({ hash: `#token=${TOKEN}`, pathname: "/" }, null, clear)).toBe(TOKEN);
  });
});
