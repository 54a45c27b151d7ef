import { render } from "preact";
import { App } from "./app.tsx";
import { followKeys, followLinks } from "./service/location.ts";

followLinks();
followKeys();
render(<App />, document.getElementById("app")!);
