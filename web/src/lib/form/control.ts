/** What a field hands to its control, so that both belong together for everybody. */
export interface Control {
  id: string;
  label: string;
  describedBy: string | undefined;
  isWrong: boolean;
}
