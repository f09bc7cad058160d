// Records the file operations of a program in a folder, with the written bytes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/durability/tracer.h"

namespace carole::testing {

// A file or folder is a node, as an inode is. It keeps its number when it is renamed.
using Node = int;
inline constexpr Node kRoot = 0;  // the recorded folder

enum class OpKind : uint8_t {
  kCreate,  // entry `name` of `folder` becomes the new, empty file `node`
  kMake,    // the same with a new folder
  kAdd,     // entry `name` of `folder` becomes the existing `node` (link)
  kRemove,  // entry `name` of `folder` is removed
  kRename,  // entry `name` of `folder` becomes entry `new_name` of `new_folder`
  kWrite,   // `bytes` at `offset` of `node`
  kResize,  // `node` gets `size` bytes
  kSync,    // fsync of `node`
  kMark     // the program opened a file whose name begins with kMarkPrefix
};

// The rest of the name is the text of a kMark. Such files do not exist.
inline constexpr char kMarkPrefix[] = ".mark-";

struct FileOp {
  OpKind kind = OpKind::kMark;
  Node node = -1, folder = -1, new_folder = -1;
  std::string name, new_name;
  int64_t offset = 0, size = 0;
  std::string bytes;
  std::string text;  // for messages and marks
};

// The content of a folder.
struct TreeNode {
  bool is_folder = false;
  std::string content;                // of a file
  std::map<std::string, Node> names;  // of a folder
};
using Tree = std::map<Node, TreeNode>;

// Decides about a call, given its key. The key names call, file and occurrence, such as
// "fsync run/model.ckpt-2.h5.tmp 1". It is the same in each run of a deterministic program.
using Injector = std::function<Injection(const std::string& key, const TracedCall& call)>;

// Reads the folder when it is constructed, and appends to ops() while programs run.
class Recorder : public CallObserver {
 public:
  explicit Recorder(std::string folder, Injector injector = nullptr);

  Injection Before(const TracedCall& call) override;
  void After(const TracedCall& call) override;

  const Tree& before() const { return before_; }  // the folder before the first operation
  const std::vector<FileOp>& ops() const { return ops_; }
  // The keys of all calls, in order.
  const std::vector<std::string>& keys() const { return keys_; }
  // Operations that the recorder cannot model, such as writes to mapped memory.
  const std::vector<std::string>& unsupported() const { return unsupported_; }

 private:
  Node Snapshot(const std::string& path);
  Node NewNode(const std::string& path);
  Node NodeAt(const std::string& path) const;  // -1 if it is unknown
  void AddOp(FileOp op, const TracedCall& call);
  FileOp Entry(OpKind kind, const std::string& path) const;
  void AfterOpen(const TracedCall& call);
  void AfterWrite(const TracedCall& call);
  void AfterRename(const TracedCall& call);
  std::string KeyOf(const TracedCall& call);

  const std::string folder_;
  const Injector injector_;
  Tree before_;
  std::map<ino_t, Node> nodes_;
  Node next_node_ = kRoot;
  std::vector<FileOp> ops_;
  std::vector<std::string> keys_, unsupported_;
  std::map<std::string, int> occurrences_;
};

// Returns the path without what differs from run to run: process IDs, times and the host.
std::string NormalizedPath(const std::string& path);

}  // namespace carole::testing
