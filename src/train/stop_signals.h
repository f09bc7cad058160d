// The requests of schedulers and people to stop: SIGTERM, SIGUSR1, SIGINT.
#pragma once

namespace carole::train {

// Catches them until the process has ended: a scheduler sends SIGTERM to the other ranks once the
// first has gone (srun --kill-on-bad-exit), and one that is about to end says with its own code
// how. A second SIGINT ends the program at once. Forgets requests of before.
void CatchStopSignals();

// Whether one has come. Any thread.
bool StopRequested();

}  // namespace carole::train
