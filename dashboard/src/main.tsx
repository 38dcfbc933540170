/** Where the page begins: it takes the token, and shows either the node or where to get one. */

import { render } from "preact";
import { Page } from "./page";
import { tabStorage, takeToken } from "./token";

const take = (): string | null => takeToken(location, tabStorage(), () => {
  history.replaceState(null, "", location.pathname);
});
const place = document.getElementById("page");
if (place === null) throw new Error("the page has no #page");
place.replaceChildren();
render(<Page take={take} />, place);
