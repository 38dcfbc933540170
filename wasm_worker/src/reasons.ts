/** Why the gateway, or the way there, says no: in plain words, and what a person can do. */

export interface Reason {
  readonly title: string;
  readonly advice: string;
}

const REPORT = "If it happens again, please report it, with the version below.";
const LATER = "The page comes back by itself.";

/** Those of docs/volunteers.md, then the page's own. */
export const REASONS: Readonly<Record<string, Reason>> = {
  malformed: {
    title: "The gateway did not understand this page",
    advice: `Reload the page: it may be older than the gateway. ${REPORT}`,
  },
  oversize: {
    title: "This page said too much at once",
    advice: `Reload the page, then start again. ${REPORT}`,
  },
  late: {
    title: "This page took too long to say hello",
    advice: "The computer or the connection may be very busy just now. Start again a little later.",
  },
  version: {
    title: "This page is of another version than its gateway",
    advice: "Reload the page to get the gateway's own: with Ctrl+Shift+R, or with Shift and the "
      + "reload button.",
  },
  chain: {
    title: "The gateway belongs to another network by now",
    advice: "It was probably set up anew. Reload the page, then start again.",
  },
  clock: {
    title: "The clock of this computer is wrong",
    advice: "It differs from the gateway's by more than two minutes. Set date and time to "
      + "automatic in the computer's settings, then start again.",
  },
  expired: {
    title: "The introduction of this page has run out",
    advice: "It holds for a day. Start again to make a new one. If that does not help, the clock "
      + "of this computer is wrong.",
  },
  "peer-id": {
    title: "The gateway took this page for another one",
    advice: `Reload the page, then start again. ${REPORT}`,
  },
  role: {
    title: "The gateway did not take this page for a volunteer",
    advice: `Reload the page, then start again. ${REPORT}`,
  },
  signature: {
    title: "The gateway does not accept this page's signature",
    advice: "Reload the page, then start again. If it happens again, erase the key below, and "
      + "begin with a new one.",
  },
  node: {
    title: "The gateway knows this connection as one of the training machines",
    advice: "Reload the page, then start again: it then comes with a connection of its own.",
  },
  closed: {
    title: "This gateway does not ask volunteers for anything",
    advice: "Its owner has switched that off. Ask whoever gave you the address for another one.",
  },
  full: {
    title: "All places at this gateway are taken",
    advice: `Many are helping just now. ${LATER}`,
  },
  "address-full": {
    title: "All places for your internet address are taken",
    advice: `Others behind the same router help already. ${LATER}`,
  },
  "new-names": {
    title: "Too many new volunteers came from your internet address",
    advice: "Start again in an hour. Do not erase the key of this browser: by it the gateway "
      + "knows that you are not new.",
  },
  "address-faults": {
    title: "The gateway has refused too much from your internet address",
    advice: "Something behind the same router misbehaved. Start again in an hour.",
  },
  standing: {
    title: "Some results of this browser were not the right ones",
    advice: "So the gateway takes none for a day. Faulty or overclocked memory is a common cause. "
      + "Start again tomorrow.",
  },
  elsewhere: {
    title: "The same key works elsewhere",
    advice: "Only one page at a time can work with it.",
  },
  "too-fast": {
    title: "This page said too much in a short time",
    advice: `Reload the page, then start again. ${REPORT}`,
  },
  "unknown-task": {
    title: "The gateway did not know the piece that this page answered",
    advice: `Only that piece is lost. Start again. ${REPORT}`,
  },
  replayed: {
    title: "This page answered the same piece twice",
    advice: `Only that piece is lost. Start again. ${REPORT}`,
  },
  silent: {
    title: "The gateway has heard nothing of this page",
    advice: `The connection was too slow, or the computer slept. ${LATER}`,
  },
  idle: {
    title: "Your place went to others while this page did nothing",
    advice: "Once it goes on, it asks for another one.",
  },
  ended: {
    title: "The gateway was shut down",
    advice: `It may only be starting again. ${LATER}`,
  },
  "no-gateway": {
    title: "There is no gateway at this address",
    advice: "The page came from a place where nobody gives out work. It can only practise here: "
      + "nothing that it computes counts.",
  },
  unreachable: {
    title: "The gateway cannot be reached",
    advice: `It may be off, or the network is. ${LATER}`,
  },
  lost: {
    title: "The connection is lost",
    advice: `The piece in hand went to others. ${LATER}`,
  },
  storage: {
    title: "This browser refuses to store the key",
    advice: "Private windows and strict settings do that. Allow this site to store data, or open "
      + "it in a normal window, then start again.",
  },
  crypto: {
    title: "This browser cannot sign what it finds",
    advice: "Update it, or use another one.",
  },
  "net-worker": {
    title: "The part of this page that talks to the gateway has stopped",
    advice: "It is started again by itself.",
  },
};

const UNKNOWN: Reason = {
  title: "The gateway ended the session",
  advice: `Reload the page, then start again. ${REPORT}`,
};

export function reasonOf(name: string): Reason {
  return Object.hasOwn(REASONS, name) ? REASONS[name]! : UNKNOWN;
}
