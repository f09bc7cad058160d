#include "launch/job/ssh.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "launch/cluster/hostfile.h"
#include "launch/cluster/text.h"
#include "launch/job/process.h"
#include "src/core/error.h"

namespace carole::launch {
namespace {

namespace fs = std::filesystem;

// The chief knows every sshd of the job by this name, whatever its address.
constexpr const char* kHostKeyAlias = "carole-job";
constexpr const char* kKeygenPackage = "openssh-client";

[[noreturn]] void Fail(const std::string& path, const char* what) {
  throw DiskError(
      fmt::format("[launch] {}: cannot be {}: {}; look at --ssh_key, --work_dir and "
                  "TMPDIR",
                  path, what, std::strerror(errno)));
}

std::string ReadKey(const fs::path& path) {
  if (!fs::is_regular_file(path))  // a pipe might never end
    throw ConfigError(
        fmt::format("[launch] {}: is no regular file, want a private key", path.string()));
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file && text << file.rdbuf()) return text.str();
  throw DiskError(
      fmt::format("[launch] {}: cannot be read, or is empty: want a key of ssh", path.string()));
}

void CheckOwner(const fs::path& path, bool is_secret) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) Fail(path.string(), "found");
  if (status.st_uid != geteuid() && status.st_uid != 0)
    throw ConfigError(
        fmt::format("[launch] {}: somebody else's key: got owner {}, want {}; remove it, or name "
                    "another folder with --work_dir",
                    path.string(), status.st_uid, geteuid()));
  if (!is_secret && (status.st_mode & 077) != 0)
    throw ConfigError(
        fmt::format("[launch] {}: others can read the key: got mode {:o}, want 600; "
                    "remove it and start again",
                    path.string(), status.st_mode & 0777));
}

// `copy` is what ssh-keygen reads of the key at `path`.
std::string PublicKeyOf(const std::string& copy, const fs::path& path) {
  const std::string program = FindProgram("ssh-keygen", kKeygenPackage);
  try {
    return RunToEnd({program, "-y", "-P", "", "-f", copy});
  } catch (const ConfigError&) {
    throw ConfigError(
        fmt::format("[launch] {}: is no private key without a passphrase; make one "
                    "with ssh-keygen -N ''",
                    path.string()));
  }
}

}  // namespace

PrivateFolder::PrivateFolder() {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  if (error) {
    const char* const given = std::getenv("TMPDIR");
    throw ConfigError(fmt::format("[launch] TMPDIR: got {}, want a folder that is there",
                                  Quote(given != nullptr ? given : "/tmp")));
  }
  std::string name = (temporary / "carole-launch-XXXXXX").string();
  if (name.find_first_of(" \t\n\"'\\%") != std::string::npos)
    throw ConfigError(
        fmt::format("[launch] TMPDIR: got {}, want a path without spaces, quotes and "
                    "'%'",
                    Quote(name)));
  if (mkdtemp(name.data()) == nullptr) Fail(name, "made");  // mode 700
  path_ = name;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void WritePrivateFile(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) Fail(path, "created");
  errno = ENOSPC;  // a short write sets none
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (close(file) != 0 || !written) Fail(path, "written");
}

fs::path SharedKeyPath(const fs::path& work_dir) {
  return work_dir / ".carole-launch" / "id_ed25519";
}

void MakeSharedKey(const fs::path& path) {
  if (fs::exists(path)) return;
  const fs::path folder = path.parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw DiskError(fmt::format("[launch] --work_dir {}: cannot be written: {}", folder.string(),
                                error.message()));
  fs::permissions(folder, fs::perms::owner_all, error);
  const std::string part = fmt::format("{}.{}.part", path.string(), getpid());
  fs::remove(part, error);  // of a process of this number that was killed: ssh-keygen would ask
  RunToEnd({FindProgram("ssh-keygen", kKeygenPackage), "-q", "-t", "ed25519", "-N", "", "-C",
            "carole", "-f", part});
  fs::remove(part + ".pub", error);
  fs::rename(part, path);  // whole, or not there
}

std::string TakeKey(const fs::path& path, bool is_secret, const PrivateFolder& folder) {
  if (!is_secret) CheckOwner(path.parent_path(), is_secret);
  CheckOwner(path, is_secret);
  const std::string copy = folder / "key";
  WritePrivateFile(copy, ReadKey(path));
  std::istringstream words(PublicKeyOf(copy, path));
  std::string type, key;
  words >> type >> key;
  return type + " " + key;
}

std::string TaskName(const Task& task) {
  return fmt::format("{}-{}", RoleName(task.role), task.index);
}

std::string TaskAlias(const Task& task) { return "task_" + TaskName(task); }

std::string JobSshConfig(const Cluster& cluster, const std::string& user,
                         const PrivateFolder& folder) {
  std::string text;
  for (const Task& task : cluster.tasks) {
    if (!task.host.empty()) text += SshHost(TaskAlias(task), task.host, task.port);
  }
  text += ClusterText(cluster, Format::kSshConfig);
  return text + fmt::format(
                    "Host *\n"
                    "  User {0}\n"
                    "  IdentityFile {1}/key\n"
                    "  IdentitiesOnly yes\n"
                    "  BatchMode yes\n"
                    "  PasswordAuthentication no\n"
                    "  HostKeyAlias {2}\n"
                    "  StrictHostKeyChecking yes\n"
                    "  CheckHostIP no\n"
                    "  UserKnownHostsFile {1}/known_hosts\n"
                    "  GlobalKnownHostsFile /dev/null\n"
                    "  ConnectTimeout 5\n"
                    "  ServerAliveInterval 5\n"
                    "  ServerAliveCountMax 3\n"
                    "  LogLevel ERROR\n",
                    user, folder.path().string(), kHostKeyAlias);
}

std::string KnownHosts(const std::string& public_key) {
  return fmt::format("{} {}\n", kHostKeyAlias, public_key);
}

std::string AuthorizedKeys(const std::string& public_key) {
  return fmt::format("restrict {}\n", public_key);
}

std::string SshdConfig(int port, const std::string& user, const PrivateFolder& folder,
                       const std::vector<std::string>& environment) {
  // StrictModes would refuse the temporary folder's parent; the folder itself is this user's only.
  std::string text = fmt::format(
      "Port {0}\n"
      "HostKey {1}/key\n"
      "AuthorizedKeysFile {1}/authorized_keys\n"
      "AuthenticationMethods publickey\n"
      "AllowUsers {2}\n"
      "PermitRootLogin prohibit-password\n"
      "PasswordAuthentication no\n"
      "KbdInteractiveAuthentication no\n"
      "UsePAM no\n"
      "StrictModes no\n"
      "DisableForwarding yes\n"
      "PermitUserRC no\n"
      "PermitUserEnvironment no\n"
      "PrintMotd no\n"
      "PidFile none\n"
      "MaxStartups 1000\n"
      "ClientAliveInterval 5\n"
      "ClientAliveCountMax 3\n"
      "LogLevel ERROR\n"
      "SetEnv CAROLE_LAUNCH_DIR={1}",
      port, folder.path().string(), user);
  for (const std::string& variable : environment) {
    if (variable.find_first_of("\"\\\n\r") == std::string::npos)
      text += fmt::format(" \"{}\"", variable);
  }
  return text + "\n";
}

std::string UserName() {
  const passwd* user = getpwuid(geteuid());
  if (user == nullptr)
    throw ConfigError(fmt::format(
        "[launch] user: the system has no name for it: got user id {}, want one that /etc/passwd "
        "lists, as ssh does; add a line for it to the container",
        geteuid()));
  return user->pw_name;
}

}  // namespace carole::launch
