// Keys and trust between the hosts of a job.
//
// The problem. The chief must run programs on the other hosts by ssh: its own sessions, and the
// daemons of mpirun. The containers of a cloud job have no ssh set-up for each other: no keys, no
// known hosts, ports that TF_CONFIG dictates. A user must not have to prepare anything, nobody else
// may get in, and the machine's own ssh set-up must not be touched or matter.
//
// The solution is one ed25519 key pair per job, which has three uses:
//
//   host key        of the sshd that each task starts on its port (sshd_config: HostKey)
//   client key      with which the chief logs in (ssh_config: IdentityFile)
//   authorized key  the only one that may log in (authorized_keys)
//
// So "knows the job's private key" means "belongs to the job", in both directions. The chief
// believes a host only if it has the key (StrictHostKeyChecking yes). Addresses do not matter: ssh
// knows every sshd of the job by the alias carole-job, so known_hosts has one line, and a task
// that comes back with another address is still believed.
//
// The key comes from one of two options.
//
//   work_dir    The chief creates WORK_DIR/.carole-launch/id_ed25519 in the folder that all hosts
//               share. The other tasks wait for it. It is created under a temporary name and then
//               renamed, so a task that sees the file sees the whole key. Folder and file must
//               belong to this user or to root, and other users must not be able to read them:
//               a user who can place a key there can log in.
//   ssh_key     The platform mounts a key on all hosts. The platform also chooses its mode, so only
//               the owner is checked.
//
// ssh and sshd refuse a private key that other users can read, even if the platform has mounted it
// so. Therefore each task copies the key, with mode 600, into a private folder of its own (mode
// 700), next to the other files that its ssh or sshd needs:
//
//   task    files                                    used by
//   chief   key, known_hosts, ssh_config, hostfile   ssh -F FOLDER/ssh_config, mpirun
//   others  key, authorized_keys, sshd_config        sshd -D -e -f FOLDER/sshd_config
//
// The folder's path goes through mpirun (plm_rsh_args "-F FOLDER/ssh_config"), which splits its
// value at spaces. So paths with spaces, quotes, backslashes or '%' are refused.
//
// An example: host h1 has worker 0 on port 2222 and worker 1 on port 2224. Each task has an entry
// in ssh_config, which the chief's sessions use. The host has a third one, which the daemon of
// mpirun uses, with the port of the host's first training task.
//
//   Host task+worker-0          Host task+worker-1          Host h1
//     HostName h1                 HostName h1                 HostName h1
//     Port 2222                   Port 2224                   Port 2222
//
// Both sides notice within 15 s that the other one is silent (ServerAliveInterval and
// ClientAliveInterval 5 s, three times). MaxStartups is high because a large job makes many
// connections at once.
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
#include "launch/cluster/message_text.h"
#include "launch/job/process.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"

namespace carole::launch {
namespace {

namespace fs = std::filesystem;

// The name under which the chief knows every sshd of the job, whatever its address.
constexpr const char* kHostKeyAlias = "carole-job";
constexpr const char* kSshKeygenPackage = "openssh-client";
constexpr const char* kTemporary = "TMPDIR";  // whose private folder holds all files of the job

// `from` names where the path comes from: a flag or a variable.
[[noreturn]] void Fail(const std::string& path, const char* what, const std::string& from) {
  throw DiskError(fmt::format("[launch] {}: cannot be {}: {}; check {}", path, what,
                              std::strerror(errno), from));
}

std::string ReadKey(const fs::path& path) {
  if (!fs::is_regular_file(path))  // reading a pipe might never end
    throw ConfigError(
        fmt::format("[launch] {}: not a regular file; want a private key of ssh", path.string()));
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw DiskError(
        fmt::format("[launch] {}: cannot be read: {}", path.string(), std::strerror(errno)));
  std::ostringstream text;
  if (text << file.rdbuf()) return text.str();
  throw ConfigError(fmt::format("[launch] {}: is empty; want a private key of ssh", path.string()));
}

// Throws ConfigError if the file or folder belongs to another user or, unless the key is mounted,
// if other users can read it.
void CheckOwnerAndMode(const fs::path& path, bool is_mounted) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0)
    Fail(path.string(), "found", Option(is_mounted ? "ssh_key" : "work_dir"));
  if (status.st_uid != geteuid() && status.st_uid != 0)
    throw ConfigError(fmt::format(
        "[launch] {}: the key belongs to another user: got owner {}, want {}; remove it, or "
        "choose another folder with {}",
        path.string(), status.st_uid, geteuid(), Option("work_dir")));
  if (!is_mounted && (status.st_mode & 077) != 0)
    throw ConfigError(
        fmt::format("[launch] {}: other users can read the key: got mode {:o}, want 600; "
                    "remove it and start again",
                    path.string(), status.st_mode & 0777));
}

// Returns the public key of the key file `copy`. `path` is the original file, for messages.
std::string PublicKeyOf(const std::string& copy, const fs::path& path) {
  const std::string program = FindProgram("ssh-keygen", kSshKeygenPackage);
  try {
    return RunAndCaptureOutput({program, "-y", "-P", "", "-f", copy});
  } catch (const ConfigError&) {
    throw ConfigError(
        fmt::format("[launch] {}: not a private key without a passphrase; create one "
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
    throw ConfigError(
        fmt::format("[launch] TMPDIR: no such folder: got {}, want an existing folder",
                    Quote(given != nullptr ? given : "/tmp")));
  }
  std::string name = (temporary / "carole-launch-XXXXXX").string();
  if (name.find_first_of(" \t\n\"'\\%") != std::string::npos)
    throw ConfigError(
        fmt::format("[launch] TMPDIR: bad path: got {}, want a path without spaces, quotes, "
                    "backslashes and '%'",
                    Quote(name)));
  if (mkdtemp(name.data()) == nullptr) Fail(name, "created", kTemporary);  // mode 700
  path_ = name;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void WritePrivateFile(const std::string& path, const std::string& text) {
  const FileDescriptor file(RetryIfInterrupted([&] {
    return open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  }));
  if (!file.is_open()) Fail(path, "created", kTemporary);
  errno = WriteAt(file.get(), text, 0);
  if (errno != 0) Fail(path, "written", kTemporary);
}

fs::path SharedKeyPath(const fs::path& work_dir) {
  return work_dir / ".carole-launch" / "id_ed25519";
}

void MakeSharedKey(const fs::path& path) {
  if (fs::exists(path)) return;
  const fs::path folder = path.parent_path();
  std::error_code error;
  MakeFolder("launch", folder.string());
  fs::permissions(folder, fs::perms::owner_all, error);
  const std::string part = fmt::format("{}.{}.part", path.string(), getpid());
  fs::remove(part, error);  // left by a killed process with this id: ssh-keygen would ask whether
                            // to overwrite it
  RunAndCaptureOutput({FindProgram("ssh-keygen", kSshKeygenPackage), "-q", "-t", "ed25519", "-N",
                       "", "-C", "carole", "-f", part});
  fs::remove(part + ".pub", error);
  CommitFile("launch", part, path.string());  // tasks see the whole key or none
}

std::string InstallPrivateKey(const fs::path& path, bool is_mounted, const PrivateFolder& folder) {
  if (!is_mounted) CheckOwnerAndMode(path.parent_path(), is_mounted);
  CheckOwnerAndMode(path, is_mounted);
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

std::string TaskAlias(const Task& task) { return "task+" + TaskName(task); }

std::string JobSshConfig(const Cluster& cluster, const std::string& user,
                         const PrivateFolder& folder) {
  std::string text;
  for (const Task& task : cluster.tasks) {
    if (!task.host.empty()) text += SshHostBlock(TaskAlias(task), task.host, task.port);
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
  // StrictModes is off because it refuses the parent of the private folder, which everybody may
  // write. The private folder itself belongs to this user.
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
        "[launch] user: has no name: got user id {}, want one that is listed in /etc/passwd, which "
        "ssh requires; add a line for it in the container",
        geteuid()));
  return user->pw_name;
}

}  // namespace carole::launch
