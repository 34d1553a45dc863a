// Updates the board. Without this module the page is reloaded every few seconds.

const INTERVAL = 1500;

const board = document.querySelector("[data-live]");
const pause = document.querySelector("[data-pause]");
let isPaused = false;

pause.hidden = false;
pause.addEventListener("click", () => {
  isPaused = !isPaused;
  pause.textContent = isPaused ? "Go on" : "Pause";
});

async function refresh() {
  // Do not replace a control that has the focus.
  if (isPaused || document.hidden || board.contains(document.activeElement)) return;
  const answer = await fetch(board.dataset.live);
  if (answer.ok) board.innerHTML = await answer.text();
}

async function run() {
  try {
    await refresh();
  } catch {
    // The server does not answer: keep the current content.
  }
  setTimeout(run, INTERVAL);
}

setTimeout(run, INTERVAL);
