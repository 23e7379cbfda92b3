// Light or dark: as the system says, or as the user does.
import {onSetting, setting} from '../base/settings.js';

export function followTheme(onchange) {
  const apply = () => {
    document.documentElement.dataset.theme = setting('theme');
    onchange();
  };
  onSetting('theme', apply);
  apply();
}
