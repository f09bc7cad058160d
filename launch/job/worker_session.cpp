#include "launch/job/worker_session.h"

#include <fmt/format.h>

#include "launch/job/ssh.h"
#include "src/core/error.h"
#include "src/core/stopwatch.h"

namespace carole::launch {
namespace {

constexpr const char* kReady = "carole: ready";
// The command of a session, the same for every task. It reports that it runs, then copies its
// standard input to the end file. So the file gets the exit code, or stays empty if the chief dies.
constexpr const char* kCommand = R"(echo "carole: ready"; exec cat >"$CAROLE_LAUNCH_DIR/end")";
constexpr double kSecondsBetweenTries = 1;

// Returns the last line that is not empty.
std::string LastLine(std::string text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0
}

}  // namespace

WorkerSession::WorkerSession(std::string ssh, std::string ssh_config, Task task)
    : ssh_(std::move(ssh)), ssh_config_(std::move(ssh_config)), task_(std::move(task)) {}

bool WorkerSession::Poll() {
  if (session_ && !session_->IsRunning()) {
    const std::string last_line = LastLine(session_->Output());
    problem_ = last_line.empty() || last_line == kReady
                   ? fmt::format("the ssh session ended with exit code {}", session_->exit_code())
                   : last_line;
    session_.reset();
  }
  if (!session_ && SteadySeconds() >= next_try_) {
    next_try_ = SteadySeconds() + kSecondsBetweenTries;
    try {
      session_ = std::make_unique<Process>(Process::Options{
          .argv = {ssh_, "-T", "-F", ssh_config_, TaskAlias(task_), kCommand}, .pipes = true});
    } catch (const DiskError& error) {  // no process or pipe is free: a later Poll() tries again
      problem_ = error.what();
    }
  }
  return session_ && session_->Output().find(kReady) != std::string::npos;
}

void WorkerSession::SendExitCode(int exit_code) {
  if (session_ && session_->IsRunning())
    session_->WriteAndCloseInput(fmt::format("{}\n", exit_code));
}

bool WorkerSession::IsClosed() { return !session_ || !session_->IsRunning(); }

}  // namespace carole::launch
