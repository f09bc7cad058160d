// The requests of schedulers and people to stop: SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGINT, and
// SIGHUP of a closed terminal (where nohup has not turned it off).
#pragma once

namespace carole::train {

// Catches them until the process has ended: a scheduler sends SIGTERM to the other ranks once the
// first has gone (srun --kill-on-bad-exit), and one that is about to end says with its own code
// how. A second SIGINT ends the program at once. From here on a log that nobody reads is no error.
// Forgets requests of before.
void CatchStopSignals();

// Whether one has come. Any thread.
bool StopRequested();

}  // namespace carole::train
