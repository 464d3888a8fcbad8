// Actions: what is done from here, each in a dialog that says what it does, and then what came of it.

import { element, keyed, say, set } from "./elements.js";

/** What the node lets be done from here, as its stream says. */
let allowed = new Set();

/** In memory alone, as the page keeps it. */
let token = () => "";

/** Is told once where the token is. */
export function signedInBy(reads) {
  token = reads;
}

/** Takes what the node says that may be done. */
export function permit(actions) {
  allowed = new Set(actions);
}

export const may = (action) => allowed.has(action);

/** Sends an order: whether it was obeyed, and what the node says. */
async function order(action, body) {
  const headers = { "content-type": "application/json" };
  if (token()) headers.authorization = `Bearer ${token()}`;
  const options = { method: "POST", headers, body: JSON.stringify(body), cache: "no-store", credentials: "same-origin", redirect: "error" };
  try {
    const answer = await fetch(`/console/actions/${action}`, options);
    const text = (await answer.text()).trim();
    return { ok: answer.ok, text: text || `The node answered ${answer.status}.` };
  } catch {
    return { ok: false, text: "The node did not answer. Whether it was done is not known: look at the view before you do it again." };
  }
}

/** A field of a dialog: { name, label, hint, value, options }; with options it is a choice among them. */
function field({ name, label, hint, value, options, type = "text" }) {
  const id = `order-${name}`;
  const chosen = options
    ? element("select", { id }, ...options.map(([key, text]) => element("option", { value: key, selected: key === value }, text)))
    : element("input", { id, type, autocomplete: "off", spellcheck: "false", value: value ?? "", required: true });
  if (hint) set(chosen, "aria-describedby", `${id}-hint`);
  const parts = [element("label", { for: id }, label), chosen];
  if (hint) parts.push(element("p", { id: `${id}-hint`, class: "hint" }, hint));
  return { name, chosen, element: element("div", { class: "field" }, ...parts) };
}

/**
 * Asks before something is done, has it done, and says what came of it.
 * { action, title, text, label, fields, typed, body(values) }; with `typed` that text must be typed.
 */
export function ask({ action, title, text, label, fields = [], typed, body }) {
  const inputs = fields.map(field);
  const name = typed !== undefined && field({ name: "typed", label: "Type this to go on:" });
  if (name) name.element.firstElementChild.append(" ", element("code", {}, typed));
  const outcome = element("p", { class: "outcome", role: "status" });
  const go = element("button", { type: "submit", "data-danger": Boolean(name) }, label);
  const leave = element("button", { type: "button" }, "Cancel");
  const form = element("form", {}, element("h2", { id: "order-title" }, title), element("p", {}, text),
    ...inputs.map((input) => input.element), ...(name ? [name.element] : []), outcome, element("div", { class: "pages" }, go, leave));
  const dialog = element("dialog", { class: "panel", "aria-labelledby": "order-title" }, form);
  const check = () => { go.disabled = Boolean(name) && name.chosen.value !== typed; };
  if (name) name.chosen.addEventListener("input", check);
  check();
  leave.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  form.addEventListener("submit", async (submitted) => {
    submitted.preventDefault();
    const values = Object.fromEntries(inputs.map((input) => [input.name, input.chosen.value]));
    if (name) values.typed = name.chosen.value;
    go.disabled = true;
    set(outcome, "data-kind", null);
    say(outcome, "Asked the node …");
    const { ok, text: said } = await order(action, body(values));
    set(outcome, "data-kind", ok ? "good" : "bad");
    say(outcome, said);
    if (!ok) return check();
    go.hidden = true;
    say(leave, "Close");
    leave.focus();
    return undefined;
  });
  document.body.append(dialog);
  dialog.showModal();
}

/** Buttons in a cell: [label, what it is about, act]; one that is not allowed any more goes. */
export function buttons(cell, wanted) {
  keyed(cell, wanted, ([label]) => label,
    ([label]) => {
      const made = element("button", { type: "button", class: "small" }, label);
      made.addEventListener("click", () => made.act());
      return made;
    },
    (button, [label, about, act]) => {
      set(button, "aria-label", `${label} ${about}`);
      button.act = act;
    });
}
