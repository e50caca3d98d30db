/** Sizes computed at run time, set by script: the content security policy forbids style attributes. */

export interface Size {
  width?: number;
  height?: number;
  down?: number;
  /** The share of the available space, from 0 to 1. */
  share?: number;
}

export function sized(node: HTMLElement, size: Size): { update: (size: Size) => void } {
  const update = (now: Size): void => {
    if (now.width !== undefined) node.style.width = `${now.width}px`;
    if (now.height !== undefined) node.style.height = `${now.height}px`;
    if (now.down !== undefined) node.style.transform = `translateY(${now.down}px)`;
    if (now.share !== undefined) node.style.width = `${Math.round(now.share * 1000) / 10}%`;
  };
  update(size);
  return { update };
}
