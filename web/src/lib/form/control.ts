/** The attributes that link a field to its control. */
export interface Control {
  id: string;
  label: string;
  describedBy: string | undefined;
  isWrong: boolean;
}
