// How the machines of a job reach each other: one key for all of them, which is the host key of
// every task's own sshd, the only one that may log in, and the only host that the chief believes.
// It is not used for anything else, and nothing of the machine's own ssh set-up is read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/cluster/cluster.h"

namespace carole::launch {

// A folder in the system's temporary one that only this user can enter; it goes with the object.
class PrivateFolder {
 public:
  // Throws DiskError; ConfigError for a temporary folder whose name mpirun would cut in two.
  PrivateFolder();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Throws DiskError. The file is this user's only (mode 600).
void WritePrivateFile(const std::string& path, const std::string& text);

// Where a job keeps its key in the folder that all of its machines share.
std::filesystem::path SharedKeyPath(const std::filesystem::path& work_dir);

// Makes the key, mode 600, unless it is there already.
void MakeSharedKey(const std::filesystem::path& path);

// The key's public half, "ssh-ed25519 AAAA…", after copying the key to `folder`/key, mode 600.
// `is_secret`: a mounted one, whose mode the platform chooses; otherwise others must not be able to
// read it. Throws ConfigError when it is not this user's or root's, or no key.
std::string TakeKey(const std::filesystem::path& path, bool is_secret, const PrivateFolder& folder);

// For people: "worker-0".
std::string TaskName(const Task& task);
// What ssh calls it: "task_worker-0". A machine may be called worker-0, none has a name with '_'.
std::string TaskAlias(const Task& task);

// ssh -F: all tasks by TaskAlias(), hosts by theirs. `folder` holds key and known_hosts.
std::string JobSshConfig(const Cluster& cluster, const std::string& user,
                         const PrivateFolder& folder);
std::string KnownHosts(const std::string& public_key);

// sshd -f, for the task's port. Sessions get `environment` ("NAME=VALUE"); a value that sshd's
// quotes cannot hold is left out.
std::string SshdConfig(int port, const std::string& user, const PrivateFolder& folder,
                       const std::vector<std::string>& environment);
std::string AuthorizedKeys(const std::string& public_key);

// This user's name. Throws ConfigError when the system knows none: ssh would refuse to start.
std::string UserName();

}  // namespace carole::launch
