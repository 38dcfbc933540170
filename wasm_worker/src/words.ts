/** Numbers and sentences as people read them. */

/** What a worker's error event says; it says nothing if there is no such script. */
export function faultIn(message: string): string {
  return message.replace(/^Uncaught (Error: )?/, "") || "the worker could not be started";
}

/** Ends with a full stop and begins with a capital, whatever it was. */
export function sentence(words: string): string {
  if (words === "") return "";
  const begun = words[0]!.toUpperCase() + words.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

export function pieces(count: number): string {
  return count === 1 ? "1 piece" : `${grouped(count)} pieces`;
}

export function duration(seconds: number): string {
  return seconds < 90 ? `${seconds} s` : `${Math.round(seconds / 60)} minutes`;
}

export function grouped(count: number): string {
  return count.toLocaleString("en");
}
