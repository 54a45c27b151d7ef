import { render } from "preact";
import { App } from "./app.tsx";
import { followLinks } from "./service/location.ts";

followLinks();
render(<App />, document.getElementById("app")!);
