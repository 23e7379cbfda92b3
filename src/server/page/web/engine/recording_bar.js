// Recording what the engine does, and showing a recording: buttons, and the bar to move in it.
import {chooseFiles, download, h, iconButton, setIconButton, toast} from '../base/dom.js';
import {clock, stamp} from '../base/text.js';
import {Player, Recorder, readRecording} from './recording.js';

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8];
const LARGEST = 200 << 20;

export class RecordingBar extends EventTarget {
  #state;
  #feed;
  #recorder = null;
  #player = null;
  #record = iconButton('record', 'Record what the engine does', () => this.#toggle());
  #open = iconButton('upload', 'Show a recording', () => this.#choose());
  #length = h('span', {class: 'record-length', 'aria-hidden': 'true', hidden: true});
  #play = iconButton('play', 'Play', () => (this.#player.isPlaying ? this.#player.pause() : this.#player.play()));
  #slider = h('input', {type: 'range', min: '0', step: '0.01', 'aria-label': 'Position in the recording', oninput: () => this.#player.seek(Number(this.#slider.value))});
  #time = h('span', {class: 'figure'});
  #speed = h('select', {'aria-label': 'Speed', onchange: () => { this.#player.speed = Number(this.#speed.value); }},
    SPEEDS.map((speed) => h('option', {value: String(speed)}, `${speed}×`)));
  buttons;
  transport = h('div', {class: 'transport', hidden: true}, this.#play, this.#slider, this.#time, this.#speed,
    h('button', {type: 'button', class: 'quiet', onclick: () => this.#close()}, 'Back to live'));

  constructor(state, feed) {
    super();
    this.#state = state;
    this.#feed = feed;
    this.#record.setAttribute('aria-pressed', 'false');
    this.buttons = h('div', {class: 'recording'}, this.#length, this.#record, this.#open);
  }

  isReplaying = false;
  get now() { return this.#player?.now ?? this.#state.seconds; }

  // An event of the live engine.
  take(name, data) {
    if (!this.#recorder) return;
    this.#recorder.add(name, data);
    this.#length.textContent = clock(this.#recorder.seconds);
  }

  #toggle() {
    if (this.#recorder) return this.#finish();
    if (!this.#state.isKnown || !this.#feed.isOn) return toast('There is nothing to record until the engine is connected.');
    this.#recorder = new Recorder();
    this.#recorder.begin(this.#state);
    this.#mark(true);
  }
  #finish() {
    download(`moeflux-engine-${stamp()}.jsonl`, this.#recorder.text(), 'application/jsonl');
    this.#recorder = null;
    this.#mark(false);
  }
  #mark(records) {
    this.#record.setAttribute('aria-pressed', String(records));
    setIconButton(this.#record, records ? 'stop' : 'record', records ? 'End the recording and save it' : 'Record what the engine does');
    this.#length.hidden = !records;
    this.#length.textContent = '0:00';
  }

  async #choose() {
    const [file] = await chooseFiles({accept: '.jsonl,.json,application/jsonl'});
    if (!file) return;
    try {
      if (file.size > LARGEST) throw new Error('The file is too large for a recording.');
      this.#show(readRecording(await file.text()));
    } catch (error) {
      toast(error.message);
    }
  }

  #show(recording) {
    if (this.#recorder) this.#finish();
    this.#player?.pause();
    this.isReplaying = true;  // before the first event of it is seen
    this.dispatchEvent(new Event('mode'));
    this.#player = new Player(recording, this.#state);
    this.#slider.max = String(this.#player.length);
    this.#speed.value = '1';
    this.transport.hidden = false;
    this.#record.disabled = true;
    this.#player.addEventListener('move', () => this.#moved());
    this.#player.play();
  }
  #moved() {
    const {at, length, isPlaying} = this.#player;
    this.#slider.value = String(at);
    this.#slider.setAttribute('aria-valuetext', `${clock(at)} of ${clock(length)}`);
    this.#time.textContent = `${clock(at)} / ${clock(length)}`;
    if (this.#play.dataset.plays !== String(isPlaying)) {
      this.#play.dataset.plays = String(isPlaying);
      setIconButton(this.#play, isPlaying ? 'pause' : 'play', isPlaying ? 'Pause' : 'Play');
    }
    this.dispatchEvent(new Event('move'));
  }
  #close() {
    this.#player.pause();
    this.#player = null;
    this.isReplaying = false;
    this.transport.hidden = true;
    this.#record.disabled = false;
    this.#state.reset();
    this.dispatchEvent(new Event('mode'));
  }
}
