/** Whether the browser is light or dark now, for what is painted with the colours of the moment. */

import { useEffect, useState } from "preact/hooks";

export type Scheme = "light" | "dark";

export function useScheme(): Scheme {
  const [scheme, setScheme] = useState(schemeNow());
  useEffect(() => {
    const asked = matchMedia("(prefers-color-scheme: dark)");
    const change = (): void => setScheme(schemeNow());
    asked.addEventListener("change", change);
    return () => asked.removeEventListener("change", change);
  }, []);
  return scheme;
}

function schemeNow(): Scheme {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}
