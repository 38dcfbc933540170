/** One event's turn at a session: the state that it leads to, and the effects on the way. */

import type { ToNet } from "./protocol";
import type { Effect, Mark, Slot, State } from "./state";

/** What one event changes; the state in it is replaced, never written to. */
export class Turn {
  readonly effects: Effect[] = [];

  constructor(public state: State, readonly nowMs: number) {}

  set(change: Partial<State>): void {
    this.state = { ...this.state, ...change };
  }

  emit(...effects: Effect[]): void {
    this.effects.push(...effects);
  }

  tell(message: ToNet): void {
    this.emit({ type: "net", message });
  }

  setSlot(at: number, slot: Slot): void {
    this.set({ slots: this.state.slots.map((each, index) => (index === at ? slot : each)) });
  }

  mark(id: string, mark: Mark): void {
    const { checks } = this.state;
    this.set({ checks: checks.map((each) => (each.id === id ? { ...each, mark } : each)) });
  }
}
