/** What all cards have: a heading, and words for when there is nothing to show yet. */

import type { ComponentChildren } from "preact";

export function Card(
  { id, title, aside, children }: {
    id: string; title: string; aside?: ComponentChildren; children: ComponentChildren;
  },
) {
  return (
    <section class="card" aria-labelledby={`${id}-title`} id={id}>
      <div class="heading">
        <h2 id={`${id}-title`}>{title}</h2>
        {aside !== undefined && <p class="aside">{aside}</p>}
      </div>
      {children}
    </section>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}
