// Keys and configuration files of ssh for one job. The head of ssh.cpp explains who trusts whom.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/cluster/cluster.h"

namespace carole::launch {

// A new folder below the system's temporary folder that only this user can enter. It is removed
// with the object.
class PrivateFolder {
 public:
  // Throws DiskError if the folder cannot be created, ConfigError if the temporary folder is
  // missing or its path has characters at which mpirun would split it.
  PrivateFolder();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Writes a file that only this user can read (mode 600). Throws DiskError if it cannot be written.
void WritePrivateFile(const std::string& path, const std::string& text);

// Returns the path of the job's private key in the folder that all hosts share.
std::filesystem::path SharedKeyPath(const std::filesystem::path& work_dir);

// Creates the job's key with mode 600, unless it exists. Throws DiskError if the folder cannot be
// written, ConfigError if ssh-keygen is missing or fails.
void MakeSharedKey(const std::filesystem::path& path);

// Copies a private key to the file "key" in `folder`, with mode 600, and returns its public key,
// "ssh-ed25519 AAAA…". `is_mounted`: the platform has mounted the key and has chosen its mode;
// otherwise other users must not be able to read it. Throws ConfigError if the file is not a
// private key without a passphrase, does not belong to this user or root, or can be read by other
// users; DiskError if it cannot be read or copied.
std::string InstallPrivateKey(const std::filesystem::path& path, bool is_mounted,
                              const PrivateFolder& folder);

// Returns the name of a task in messages: "worker-0".
std::string TaskName(const Task& task);
// Returns the name of a task in the ssh configuration: "task+worker-0". It differs from every host
// name: a host may be called worker-0, but host names contain no '+'.
std::string TaskAlias(const Task& task);

// Returns the text for ssh -F. It has an entry for every task (TaskAlias()) and every host
// (Host::alias). `folder` holds the files key and known_hosts.
std::string JobSshConfig(const Cluster& cluster, const std::string& user,
                         const PrivateFolder& folder);
// Returns the text of known_hosts.
std::string KnownHosts(const std::string& public_key);

// Returns the text for sshd -f, which serves the task's port. Sessions get the variables
// `environment`
// ("NAME=VALUE"). A variable is left out if sshd cannot quote its value.
std::string SshdConfig(int port, const std::string& user, const PrivateFolder& folder,
                       const std::vector<std::string>& environment);
// Returns the text of authorized_keys.
std::string AuthorizedKeys(const std::string& public_key);

// Returns the name of this user. Throws ConfigError if the system has no name for the user id,
// because ssh would refuse to start.
std::string UserName();

}  // namespace carole::launch
