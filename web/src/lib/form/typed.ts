/** Fields that are read when one leaves them are read now: a key that saves does not leave the field. */
export function takeTyped(): void {
  const field = document.activeElement;
  if (!(field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement)) return;
  field.blur();
  field.focus({ preventScroll: true });
}
