/** The kinds of tasks, in the order in which people see them, and what each is good for. */

export interface Kind {
  readonly id: string; // as the gateway names it
  readonly title: string;
  readonly now: string; // what the page does
  readonly why: string; // and whom it helps
  readonly isHeavy: boolean; // comes with blobs of megabytes
  readonly isProof: boolean; // needs no Python, see proofs.ts
}

export const KINDS: readonly Kind[] = [
  {
    id: "certificate", title: "Signatures", isHeavy: false, isProof: true,
    now: "Checking the signatures of a certificate",
    why: "A step of training counts once enough machines have signed it. A forged signature "
      + "would be found here.",
  },
  {
    id: "dag", title: "History", isHeavy: false, isProof: true,
    now: "Following the chain of training steps",
    why: "Each step names the one before it by its fingerprint. This shows that nobody has "
      + "rewritten what happened.",
  },
  {
    id: "slice", title: "Merging", isHeavy: false, isProof: false,
    now: "Merging a sample of updates once more",
    why: "The updates of all who train are merged into one model. Doing a sample again shows "
      + "that nobody was left out or counted twice.",
  },
  {
    id: "chunks", title: "Saved model", isHeavy: true, isProof: true,
    now: "Comparing parts of the saved model with their fingerprints",
    why: "Whoever joins later gets the model in such parts. This shows that they are whole and "
      + "unchanged.",
  },
  {
    id: "loss", title: "Quality", isHeavy: true, isProof: false,
    now: "Measuring how well the model predicts",
    why: "Only a measurement on data it was not trained on tells whether the model gets better. "
      + "Yours is one that nobody could arrange.",
  },
  {
    id: "gradient", title: "Gradient", isHeavy: true, isProof: false,
    now: "Computing the gradient of one batch",
    why: "This is the heart of training. It shows what honest work on this batch comes to.",
  },
  {
    id: "segment", title: "Training", isHeavy: true, isProof: false,
    now: "Repeating some steps of somebody's training",
    why: "Whoever only pretends to train cannot know where these steps lead. This is how it "
      + "shows.",
  },
];

const BY_ID: ReadonlyMap<string, Kind> = new Map(KINDS.map((kind) => [kind.id, kind]));

/** The ids, in ascending order, of what a page asks for. */
export function kindsFor(savesData: boolean, unfit: readonly string[]): readonly string[] {
  return KINDS
    .filter(({ id, isHeavy }) => !unfit.includes(id) && !(savesData && isHeavy))
    .map(({ id }) => id)
    .sort();
}

export function isProof(id: string): boolean {
  return BY_ID.get(id)?.isProof ?? false;
}

export function kindOf(id: string): Kind | undefined {
  return BY_ID.get(id);
}
