import { expect, test } from "vitest";
import { defaults, keep, keeperOf, recall, type Keeper } from "../src/choices";

function keeperWith(text: string | null): Keeper & { text: string | null } {
  return {
    text,
    getItem() {
      return this.text;
    },
    setItem(_, value) {
      this.text = value;
    },
  };
}

const REFUSES: Keeper = {
  getItem: () => null,
  setItem: () => {
    throw new DOMException("full", "QuotaExceededError");
  },
};

test("what was chosen is there at the next visit", () => {
  const keeper = keeperWith(null);
  const chosen = { ...defaults(false), dutyPercent: 40, workers: 2, sparesBusy: false };
  expect(keep(keeper, chosen)).toBe(true);
  expect(recall(keeper, defaults(true))).toEqual(chosen);
});

test("nothing of what makes no sense is taken up", () => {
  const text = JSON.stringify({
    dutyPercent: 0, workers: 9, gpu: "yes", sparesBusy: false, isAdmin: true, toString: true,
  });
  expect(recall(keeperWith(text), defaults(false))).toEqual({
    ...defaults(false), sparesBusy: false,
  });
  for (const odd of ["", "{", "null", "7", '"x"']) {
    expect(recall(keeperWith(odd), defaults(true))).toEqual(defaults(true));
  }
});

test("a browser that refuses to keep anything is told of", () => {
  expect(keep(REFUSES, defaults(false))).toBe(false);
  expect(keep(null, defaults(false))).toBe(false);
  const window = {
    get localStorage(): Storage {
      throw new DOMException("no", "SecurityError");
    },
  };
  expect(keeperOf(window)).toBeNull();
});

test("WebGPU is off until somebody ticks it", () => {
  expect(defaults(false).gpu).toBe(false);
});
