// The tracer.
//
// The task. Tests need every file operation of a program, HDF5's and the standard library's too, in
// one order, with the bytes. They also need to make single calls fail. A wrapper in the program
// would miss the libraries, and LD_PRELOAD misses calls that libc makes internally.
//
// How it works. The child installs a seccomp filter. The filter returns SECCOMP_RET_TRACE for the
// calls in kRules and lets all others run at full speed. ptrace then stops the thread before such a
// call. The phases of one call:
//
//   1. PTRACE_EVENT_SECCOMP: the arguments are in the registers. Paths are read from the memory of
//      the thread and from /proc/THREAD/fd. If no path is in the folder, the thread continues.
//   2. The observer decides. An error is injected by replacing the call's number by -1, which the
//      kernel skips, and by setting the result. A short write gets a smaller count.
//   3. PTRACE_SYSCALL lets the call run. The tracer waits for the end of this call only. So other
//      threads cannot make a traced call in between, and the calls have one order.
//   4. The observer sees the result.
//
// Threads and child processes are traced too (PTRACE_O_TRACECLONE and so on). PTRACE_SEIZE is used,
// so new threads begin with PTRACE_EVENT_STOP, which cannot be confused with a SIGSTOP.
#include "tests/durability/tracer.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "tests/support/temporary_folder.h"

namespace carole::testing {
namespace {

using Kind = CallKind;

// Where a traced call has its descriptor or paths. -1: it has none. A path without `at` is relative
// to the current folder.
struct Rule {
  int number;
  const char* name;
  Kind kind;
  int descriptor = -1;
  int at = -1, path = -1, new_at = -1, new_path = -1;
};

constexpr Rule kRules[] = {
    {.number = SYS_open, .name = "open", .kind = Kind::kOpen, .path = 0},
    {.number = SYS_openat, .name = "openat", .kind = Kind::kOpen, .at = 0, .path = 1},
    {.number = SYS_creat, .name = "creat", .kind = Kind::kOpen, .path = 0},
    {.number = SYS_write, .name = "write", .kind = Kind::kWrite, .descriptor = 0},
    {.number = SYS_pwrite64, .name = "pwrite64", .kind = Kind::kWrite, .descriptor = 0},
    {.number = SYS_writev, .name = "writev", .kind = Kind::kWrite, .descriptor = 0},
    {.number = SYS_pwritev, .name = "pwritev", .kind = Kind::kWrite, .descriptor = 0},
    {.number = SYS_pwritev2, .name = "pwritev2", .kind = Kind::kWrite, .descriptor = 0},
    {.number = SYS_sendfile, .name = "sendfile", .kind = Kind::kWrite, .descriptor = 0},
    {.number = SYS_copy_file_range,
     .name = "copy_file_range",
     .kind = Kind::kWrite,
     .descriptor = 2},
    {.number = SYS_ftruncate, .name = "ftruncate", .kind = Kind::kResize, .descriptor = 0},
    {.number = SYS_truncate, .name = "truncate", .kind = Kind::kResize, .path = 0},
    {.number = SYS_fallocate, .name = "fallocate", .kind = Kind::kResize, .descriptor = 0},
    {.number = SYS_fsync, .name = "fsync", .kind = Kind::kSync, .descriptor = 0},
    {.number = SYS_fdatasync, .name = "fdatasync", .kind = Kind::kSync, .descriptor = 0},
    {.number = SYS_close, .name = "close", .kind = Kind::kClose, .descriptor = 0},
    {.number = SYS_rename, .name = "rename", .kind = Kind::kRename, .path = 0, .new_path = 1},
    {.number = SYS_renameat,
     .name = "renameat",
     .kind = Kind::kRename,
     .at = 0,
     .path = 1,
     .new_at = 2,
     .new_path = 3},
    {.number = SYS_renameat2,
     .name = "renameat2",
     .kind = Kind::kRename,
     .at = 0,
     .path = 1,
     .new_at = 2,
     .new_path = 3},
    {.number = SYS_link, .name = "link", .kind = Kind::kLink, .path = 0, .new_path = 1},
    {.number = SYS_linkat,
     .name = "linkat",
     .kind = Kind::kLink,
     .at = 0,
     .path = 1,
     .new_at = 2,
     .new_path = 3},
    {.number = SYS_unlink, .name = "unlink", .kind = Kind::kUnlink, .path = 0},
    {.number = SYS_unlinkat, .name = "unlinkat", .kind = Kind::kUnlink, .at = 0, .path = 1},
    {.number = SYS_mkdir, .name = "mkdir", .kind = Kind::kMakeFolder, .path = 0},
    {.number = SYS_mkdirat, .name = "mkdirat", .kind = Kind::kMakeFolder, .at = 0, .path = 1},
    {.number = SYS_rmdir, .name = "rmdir", .kind = Kind::kRemoveFolder, .path = 0},
    {.number = SYS_mmap, .name = "mmap", .kind = Kind::kMap, .descriptor = 4},
};

const Rule* FindRule(uint64_t number) {
  for (const Rule& rule : kRules) {
    if (static_cast<uint64_t>(rule.number) == number) return &rule;
  }
  return nullptr;
}

// Installs the filter in this process. It traces mmap only if the mapping is shared and writable.
bool InstallFilter() {
  constexpr auto kArg = [](int i) {
    return static_cast<uint32_t>(offsetof(seccomp_data, args) + sizeof(uint64_t) * i);
  };
  std::vector<sock_filter> code = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
                                   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
                                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                                   BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const Rule& rule : kRules) {
    if (rule.kind == Kind::kMap) continue;
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(rule.number), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
  }
  const sock_filter map[] = {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 5),
                             BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kArg(3)),
                             BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 3),
                             BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kArg(2)),
                             BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, 0, 1),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  code.insert(code.end(), std::begin(map), std::end(map));
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

constexpr int kCannotTrace = 126;

[[noreturn]] void ExecInChild(const std::vector<std::string>& words, const std::string& out_path,
                              const std::string& err_path, int go) {
  setpgid(0, 0);
  const int out = open(out_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int err = open(err_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  char byte = 0;
  if (read(go, &byte, 1) != 1 || !InstallFilter()) _exit(kCannotTrace);
  execvp(argv[0], argv.data());
  _exit(127);
}

std::string ReadLink(const std::string& path) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = readlink(path.c_str(), target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<size_t>(size)) : "";
}

std::string ProcPath(pid_t thread, const std::string& name) {
  return "/proc/" + std::to_string(thread) + "/" + name;
}

std::string DescriptorPath(pid_t thread, int descriptor) {
  return ProcPath(thread, "fd/" + std::to_string(descriptor));
}

// Reads a C string from the memory of a thread, one page at a time.
std::string ReadString(pid_t thread, uint64_t address) {
  constexpr uint64_t kPage = 4096;
  std::string text;
  while (text.size() < PATH_MAX) {
    std::array<char, kPage> page{};
    const uint64_t count = kPage - address % kPage;
    iovec to{page.data(), count};
    iovec from{reinterpret_cast<void*>(address), count};  // NOLINT: an address of the child
    if (process_vm_readv(thread, &to, 1, &from, 1, 0) <= 0) return text;
    const size_t length = strnlen(page.data(), count);
    text.append(page.data(), length);
    if (length < count) return text;
    address += count;
  }
  return text;
}

// Returns the absolute path without symbolic links in its folder.
std::string Resolve(pid_t thread, int at, const std::string& path) {
  namespace fs = std::filesystem;
  fs::path whole = path;
  if (!whole.is_absolute())
    whole =
        fs::path(ReadLink(at == AT_FDCWD ? ProcPath(thread, "cwd") : DescriptorPath(thread, at))) /
        path;
  std::error_code error;
  if (!whole.has_filename()) whole = whole.parent_path();
  const fs::path folder = fs::weakly_canonical(whole.parent_path(), error);
  return (folder / whole.filename()).string();
}

int64_t PositionOf(pid_t thread, int descriptor) {
  const std::string info = ReadText(ProcPath(thread, "fdinfo/" + std::to_string(descriptor)));
  int64_t position = 0;
  int flags = 0;
  if (std::sscanf(info.c_str(), "pos: %ld flags: %o", &position, &flags) != 2) return 0;
  if ((flags & O_APPEND) == 0) return position;
  struct stat status {};
  return stat(DescriptorPath(thread, descriptor).c_str(), &status) == 0 ? status.st_size : 0;
}

uint64_t Argument(const user_regs_struct& r, int i) {
  const std::array<uint64_t, 6> arguments = {r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9};
  return arguments.at(static_cast<size_t>(i));
}

void FillOpen(const Rule& rule, const user_regs_struct& registers, TracedCall& call) {
  const auto flags = rule.number == SYS_creat
                         ? O_CREAT | O_TRUNC
                         : static_cast<int>(Argument(registers, rule.path + 1));
  call.may_create = (flags & O_CREAT) != 0;
  call.truncates = (flags & O_TRUNC) != 0;
}

void FillWrite(const Rule& rule, const user_regs_struct& registers, TracedCall& call) {
  call.wanted = static_cast<int64_t>(Argument(registers, 2));
  switch (rule.number) {
    case SYS_pwrite64:
    case SYS_pwritev:
    case SYS_pwritev2:
      call.offset = static_cast<int64_t>(Argument(registers, 3));
      break;
    default:  // copy_file_range with an offset is not used by anything that is tested
      call.offset = PositionOf(call.thread, call.descriptor);
  }
}

// Returns the call with everything that is known before it runs.
TracedCall Describe(const Rule& rule, pid_t thread, const user_regs_struct& registers) {
  TracedCall call{.kind = rule.kind, .name = rule.name, .thread = thread};
  const auto path_at = [&](int at, int path) {
    return Resolve(thread, at < 0 ? AT_FDCWD : static_cast<int>(Argument(registers, at)),
                   ReadString(thread, Argument(registers, path)));
  };
  if (rule.descriptor >= 0) {
    call.descriptor = static_cast<int>(Argument(registers, rule.descriptor));
    call.path = ReadLink(DescriptorPath(thread, call.descriptor));
  } else {
    call.path = path_at(rule.at, rule.path);
    if (rule.new_path >= 0) call.new_path = path_at(rule.new_at, rule.new_path);
  }
  return call;
}

void FillDetails(const Rule& rule, const user_regs_struct& registers, TracedCall& call) {
  struct stat status {};
  const std::string name =
      rule.descriptor >= 0 ? DescriptorPath(call.thread, call.descriptor) : call.path;
  call.existed = stat(name.c_str(), &status) == 0;
  call.size_before = status.st_size;
  if (rule.kind == Kind::kOpen) FillOpen(rule, registers, call);
  if (rule.kind == Kind::kWrite) FillWrite(rule, registers, call);
  if (rule.kind == Kind::kResize) call.wanted = static_cast<int64_t>(Argument(registers, 1));
  if (rule.number == SYS_unlinkat && (Argument(registers, 2) & AT_REMOVEDIR) != 0)
    call.kind = Kind::kRemoveFolder;
}

volatile sig_atomic_t deadline_passed = 0;
void OnAlarm(int) { deadline_passed = 1; }

// Makes waitpid() return with EINTR when the time is over, and then each second.
class Deadline {
 public:
  explicit Deadline(int seconds) {
    deadline_passed = 0;
    struct sigaction action {};
    action.sa_handler = OnAlarm;
    sigaction(SIGALRM, &action, &old_);
    const itimerval timer{.it_interval = {1, 0}, .it_value = {seconds, 0}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }
  ~Deadline() {
    const itimerval off{};
    setitimer(ITIMER_REAL, &off, nullptr);
    sigaction(SIGALRM, &old_, nullptr);
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  struct sigaction old_ {};
};

class Tracer {
 public:
  Tracer(pid_t main, std::string folder, CallObserver& observer)
      : main_(main), folder_(std::move(folder)), observer_(observer) {
    live_.insert(main);
  }

  // Runs until all processes have ended. Returns the exit code of the first one.
  int Run() {
    for (;;) {
      int status = 0;
      const pid_t thread = waitpid(-1, &status, __WALL);
      if (thread < 0 && errno == ECHILD) return exit_code_;
      if (deadline_passed != 0) KillAll();
      if (thread > 0) HandleStop(thread, status);
    }
  }

 private:
  void KillAll() const {
    for (const pid_t thread : live_) kill(thread, SIGKILL);
  }

  void HandleStop(pid_t thread, int status) {
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      live_.erase(thread);
      if (thread == main_)
        exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return;
    }
    live_.insert(thread);
    const int event = status >> 16, signal = WSTOPSIG(status);
    const bool is_group_stop = event == PTRACE_EVENT_STOP && signal != SIGTRAP;
    if (event == PTRACE_EVENT_SECCOMP) {
      HandleCall(thread);
    } else if (is_group_stop) {
      ptrace(PTRACE_LISTEN, thread, 0, 0);
    } else {
      ptrace(PTRACE_CONT, thread, 0, event == 0 && signal != (SIGTRAP | 0x80) ? signal : 0);
    }
  }

  bool IsInFolder(const std::string& path) const {
    return path.starts_with(folder_) &&
           (path.size() == folder_.size() || path[folder_.size()] == '/');
  }

  void HandleCall(pid_t thread) {
    user_regs_struct registers{};
    ptrace(PTRACE_GETREGS, thread, 0, &registers);
    const Rule* rule = FindRule(registers.orig_rax);
    TracedCall call;
    if (rule != nullptr) call = Describe(*rule, thread, registers);
    if (IsInFolder(call.path) || IsInFolder(call.new_path)) {
      FillDetails(*rule, registers, call);
      if (!Execute(call, registers)) return;
    }
    ptrace(PTRACE_CONT, thread, 0, 0);
  }

  // Runs the call, with the fault that the observer wants. Returns false if the thread has died.
  bool Execute(TracedCall& call, const user_regs_struct& before) {
    const Injection injection = observer_.Before(call);
    if (injection.kind == Injection::Kind::kKill) {
      kill(ProcessOf(call.thread), SIGKILL);
      return true;
    }
    user_regs_struct changed = before;
    const bool fails = injection.kind == Injection::Kind::kError;
    if (fails && call.kind != CallKind::kClose) {  // a close that fails has closed the file
      changed.orig_rax = ~0ULL;
      changed.rax = static_cast<uint64_t>(-injection.error);
    } else if (injection.kind == Injection::Kind::kShortWrite) {
      changed.rdx = (before.rdx + 1) / 2;  // bytes, or buffers
    }
    ptrace(PTRACE_SETREGS, call.thread, 0, &changed);
    if (!RunToEndOfCall(call.thread)) return false;
    user_regs_struct after{};
    ptrace(PTRACE_GETREGS, call.thread, 0, &after);
    after.rdx = before.rdx;
    if (fails) after.rax = static_cast<uint64_t>(-injection.error);
    ptrace(PTRACE_SETREGS, call.thread, 0, &after);
    call.result = static_cast<int64_t>(after.rax);
    if (call.kind == CallKind::kOpen) call.descriptor = static_cast<int>(call.result);
    observer_.After(call);
    return true;
  }

  static pid_t ProcessOf(pid_t thread) {
    const std::string status = ReadText(ProcPath(thread, "status"));
    const size_t at = status.find("Tgid:");
    return at == std::string::npos ? thread : std::stoi(status.substr(at + 5));
  }

  // Returns false if the thread has died.
  bool RunToEndOfCall(pid_t thread) {
    ptrace(PTRACE_SYSCALL, thread, 0, 0);
    int status = 0;
    while (waitpid(thread, &status, __WALL) < 0) {
      if (errno != EINTR) return false;
      if (deadline_passed != 0) KillAll();
    }
    if (WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80)) return true;
    HandleStop(thread, status);
    return false;
  }

  const pid_t main_;
  const std::string folder_;
  CallObserver& observer_;
  std::set<pid_t> live_;
  int exit_code_ = -1;
};

}  // namespace

TraceResult RunTraced(const std::vector<std::string>& words, const std::string& folder,
                      CallObserver& observer, int seconds) {
  const TemporaryFolder output;
  std::array<int, 2> go{};
  if (pipe2(go.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) ExecInChild(words, output / "out", output / "err", go[0]);
  close(go[0]);
  constexpr long kOptions = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                            PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD |
                            PTRACE_O_EXITKILL;
  const bool traced = ptrace(PTRACE_SEIZE, child, 0, kOptions) == 0;
  const int reason = errno;
  if (traced && write(go[1], "g", 1) != 1) kill(child, SIGKILL);
  close(go[1]);
  const Deadline deadline(seconds);
  TraceResult result;
  result.exit_code = Tracer(child, folder, observer).Run();
  if (!traced) throw std::runtime_error(std::string("ptrace: ") + std::strerror(reason));
  if (result.exit_code == kCannotTrace) throw std::runtime_error("seccomp: not permitted");
  result.out = ReadText(output / "out");
  result.err = ReadText(output / "err");
  std::erase(result.err, '\0');
  result.timed_out = deadline_passed != 0;
  return result;
}

std::string WhyNotTraceable() {
  struct Counter : CallObserver {
    Injection Before(const TracedCall&) override { return {}; }
    void After(const TracedCall& call) override { writes += call.kind == CallKind::kWrite; }
    int writes = 0;
  } counter;
  const TemporaryFolder folder;
  try {
    RunTraced({"sh", "-c", "echo text > " + folder / "file"},
              std::filesystem::canonical(folder.path()), counter, 60);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return counter.writes == 1 ? "" : "ptrace does not see the calls of a traced program";
}

}  // namespace carole::testing
