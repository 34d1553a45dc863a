// Keeps the board fresh. Without this module the page is reloaded every few seconds.

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
  // A control that has the focus must not vanish under the reader's fingers.
  if (isPaused || document.hidden || board.contains(document.activeElement)) return;
  const answer = await fetch(board.dataset.live);
  if (answer.ok) board.innerHTML = await answer.text();
}

async function run() {
  try {
    await refresh();
  } catch {
    // The server is away for a moment, or for good: what is shown stays.
  }
  setTimeout(run, INTERVAL);
}

setTimeout(run, INTERVAL);
