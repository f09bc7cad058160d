#include "tests/durability/recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <regex>

#include "src/core/host_name.h"
#include "tests/support/temporary_folder.h"

namespace carole::testing {
namespace {

namespace fs = std::filesystem;

std::string DescriptorPath(const TracedCall& call) {
  return "/proc/" + std::to_string(call.thread) + "/fd/" + std::to_string(call.descriptor);
}

std::string NameIn(const std::string& path) { return fs::path(path).filename().string(); }

// Reads what a write has written. This works for all forms of write.
std::string ReadBack(const TracedCall& call) {
  std::string bytes(static_cast<size_t>(call.result), '\0');
  const int file = open(DescriptorPath(call).c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t got = file < 0 ? -1 : pread(file, bytes.data(), bytes.size(), call.offset);
  if (file >= 0) close(file);
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return bytes;
}

}  // namespace

std::string NormalizedPath(const std::string& path) {
  static const std::regex kTemporary(R"(\.[^./]+-\d+-(\d+)\.tmp$)");
  static const std::regex kEvents(R"(tfevents\.\d+\..*$)");
  static const std::regex kPart(R"(\.\d+\.part$)");
  std::string text = std::regex_replace(path, kTemporary, ".HOST-PID.tmp");
  text = std::regex_replace(text, kEvents, "tfevents");
  return std::regex_replace(text, kPart, ".PID.part");
}

Recorder::Recorder(std::string folder, Injector injector)
    : folder_(std::move(folder)), injector_(std::move(injector)) {
  Snapshot(folder_);
}

Node Recorder::NewNode(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return -1;
  return nodes_[status.st_ino] = next_node_++;
}

Node Recorder::NodeAt(const std::string& path) const {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return -1;
  const auto found = nodes_.find(status.st_ino);
  return found == nodes_.end() ? -1 : found->second;
}

Node Recorder::Snapshot(const std::string& path) {
  const Node node = NewNode(path);
  TreeNode& entry = before_[node];
  entry.is_folder = fs::is_directory(path);
  if (!entry.is_folder) {
    entry.content = ReadText(path);
    return node;
  }
  for (const auto& file : fs::directory_iterator(path)) {
    const Node child = Snapshot(file.path().string());
    before_[node].names[file.path().filename().string()] = child;
  }
  return node;
}

std::string Recorder::KeyOf(const TracedCall& call) {
  const std::string path =
      call.path.size() > folder_.size() ? call.path.substr(folder_.size() + 1) : ".";
  const std::string key = std::string(call.name) + " " + NormalizedPath(path);
  return key + " " + std::to_string(++occurrences_[key]);
}

Injection Recorder::Before(const TracedCall& call) {
  keys_.push_back(KeyOf(call));
  return injector_ ? injector_(keys_.back(), call) : Injection{};
}

void Recorder::AddOp(FileOp op, const TracedCall& call) {
  op.text =
      std::string(call.name) + " " + call.path.substr(std::min(folder_.size(), call.path.size()));
  ops_.push_back(std::move(op));
}

FileOp Recorder::Entry(OpKind kind, const std::string& path) const {
  return {
      .kind = kind, .folder = NodeAt(fs::path(path).parent_path().string()), .name = NameIn(path)};
}

void Recorder::AfterOpen(const TracedCall& call) {
  const std::string name = NameIn(call.path);
  if (name.starts_with(kMarkPrefix)) {
    ops_.push_back({.kind = OpKind::kMark, .text = name.substr(std::strlen(kMarkPrefix))});
    return;
  }
  if (call.result < 0) return;
  if (call.may_create && !call.existed) {
    FileOp op = Entry(OpKind::kCreate, call.path);
    op.node = NewNode(call.path);
    AddOp(op, call);
  } else if (call.truncates && call.size_before > 0) {
    AddOp({.kind = OpKind::kResize, .node = NodeAt(call.path)}, call);
  }
}

void Recorder::AfterWrite(const TracedCall& call) {
  const Node node = NodeAt(DescriptorPath(call));
  if (node < 0) unsupported_.push_back(call.name + (" to an unknown file: " + call.path));
  AddOp({.kind = OpKind::kWrite, .node = node, .offset = call.offset, .bytes = ReadBack(call)},
        call);
  if (static_cast<int64_t>(ops_.back().bytes.size()) != call.result)
    unsupported_.push_back(call.name + (": cannot read back what was written: " + call.path));
}

void Recorder::AfterRename(const TracedCall& call) {
  FileOp op = Entry(OpKind::kRename, call.path);
  const FileOp to = Entry(OpKind::kRename, call.new_path);
  op.new_folder = to.folder;
  op.new_name = to.name;
  op.node = NodeAt(call.new_path);
  AddOp(op, call);
}

void Recorder::After(const TracedCall& call) {
  if (call.kind == CallKind::kOpen) return AfterOpen(call);
  if (call.result < 0) return;
  switch (call.kind) {
    case CallKind::kWrite:
      if (call.result > 0) AfterWrite(call);
      break;
    case CallKind::kResize: {
      const std::string path = call.descriptor >= 0 ? DescriptorPath(call) : call.path;
      AddOp({.kind = OpKind::kResize, .node = NodeAt(path), .size = call.wanted}, call);
      if (std::string(call.name) == "fallocate") unsupported_.push_back("fallocate " + call.path);
      break;
    }
    case CallKind::kSync:
      AddOp({.kind = OpKind::kSync, .node = NodeAt(DescriptorPath(call))}, call);
      break;
    case CallKind::kRename:
      AfterRename(call);
      break;
    case CallKind::kLink: {
      FileOp op = Entry(OpKind::kAdd, call.new_path);
      op.node = NodeAt(call.new_path);
      AddOp(op, call);
      break;
    }
    case CallKind::kUnlink:
    case CallKind::kRemoveFolder:
      AddOp(Entry(OpKind::kRemove, call.path), call);
      break;
    case CallKind::kMakeFolder: {
      FileOp op = Entry(OpKind::kMake, call.path);
      op.node = NewNode(call.path);
      AddOp(op, call);
      break;
    }
    case CallKind::kMap:
      unsupported_.push_back("writable shared mapping of " + call.path);
      break;
    default:
      break;
  }
}

}  // namespace carole::testing
