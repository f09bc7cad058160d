#include "launch/job/worker_session.h"

#include <fmt/format.h>

#include "launch/job/ssh.h"
#include "src/core/error.h"
#include "src/core/stopwatch.h"

namespace carole::launch {
namespace {

constexpr const char* kReady = "carole: ready";
// What the session runs: its words are always these.
constexpr const char* kCommand = R"(echo "carole: ready"; exec cat >"$CAROLE_LAUNCH_DIR/end")";
constexpr double kSecondsBetweenTries = 1;

// The last line that is not empty.
std::string LastLine(std::string text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0
}

}  // namespace

WorkerSession::WorkerSession(std::string ssh, std::string ssh_config, Task task)
    : ssh_(std::move(ssh)), ssh_config_(std::move(ssh_config)), task_(std::move(task)) {}

bool WorkerSession::Poll() {
  if (session_ && !session_->Running()) {
    const std::string said = LastLine(session_->Output());
    problem_ = said.empty() || said == kReady
                   ? fmt::format("the session ended with code {}", session_->exit_code())
                   : said;
    session_.reset();
  }
  if (!session_ && SteadySeconds() >= next_try_) {
    next_try_ = SteadySeconds() + kSecondsBetweenTries;
    try {
      session_ = std::make_unique<Process>(Process::Options{
          .words = {ssh_, "-T", "-F", ssh_config_, TaskAlias(task_), kCommand}, .pipes = true});
    } catch (const DiskError& error) {  // no process, no pipe: not for long, and the job goes on
      problem_ = error.what();
    }
  }
  return session_ && session_->Output().find(kReady) != std::string::npos;
}

void WorkerSession::End(int exit_code) {
  if (session_ && session_->Running()) session_->Finish(fmt::format("{}\n", exit_code));
}

bool WorkerSession::Gone() { return !session_ || !session_->Running(); }

}  // namespace carole::launch
