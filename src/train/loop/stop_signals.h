// Signals that ask the process to save and stop. Schedulers and users send SIGTERM, SIGUSR1,
// SIGUSR2, SIGXCPU and SIGINT; a closed terminal sends SIGHUP (unless nohup made it ignored).
#pragma once

namespace carole::train {

// Installs handlers for these signals, until the process ends. They stay installed during the exit
// as well. Once one rank has exited, srun --kill-on-bad-exit sends SIGTERM to the others; a rank
// that is about to exit must still report its own exit code.
// A second SIGINT kills the process at once. SIGPIPE is ignored from here on, so a closed log pipe
// is not an error. Requests from before the call are forgotten.
void CatchStopSignals();

// Returns true if one of the signals has arrived. Thread-safe.
bool StopRequested();

}  // namespace carole::train
