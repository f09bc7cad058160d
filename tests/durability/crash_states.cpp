// The crash states.
//
// What POSIX promises. write(), rename() and so on change what processes see. They change the disk
// at any later time, in any order. Only fsync() orders them: after fsync(file) the bytes and the
// size of the file are on the disk, after fsync(folder) its names are. Nothing else is promised;
// fsync(file) does not make the name of the file durable.
//
// The model. The disk holds a Tree. Each operation that was executed and not yet synced is split
// into pieces, each of which may have reached the disk or not:
//
//   operation                 pieces
//   write of 10,000 bytes     the new size, if the file grew; three blocks of at most 4096 bytes
//   truncate                  the new size
//   create, mkdir, unlink     the entry of the folder
//   rename in one folder      one piece: POSIX wants it atomic
//   rename between folders    the new entry; the removal of the old one
//
// A cut is a number of executed operations. At a cut, each subset of the pieces gives a state.
// Bytes whose block is missing, but whose size is there, read as zeros or as garbage: a file system
// may show what the disk held before.
//
// An example: create T; write T; fsync T; rename T to A; fsync folder. At the cut after the rename
// the pieces are "create T" and "rename". The four subsets give three states: no file, T, and A
// (the rename alone gives A too). In each, the content is complete, because T was synced.
//
// Enumeration. The number of subsets is exponential. So at each cut these are taken: nothing; all;
// only entries; only sizes and entries; only blocks and sizes; each piece alone; all but one piece;
// each piece together with all entries and sizes; each prefix in the order of execution; the last
// block torn in the middle; and random subsets. Missing bytes are zeros and, in a second pass,
// garbage. States are compared by a hash of what readers see, and each distinct one is visited
// once.
#include "tests/durability/crash_states.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <unordered_set>

#include "src/core/hash.h"
#include "tests/support/temporary_folder.h"

namespace carole::testing {
namespace {

enum class PieceKind : uint8_t { kBlock, kSize, kEntry };

struct Piece {
  PieceKind kind = PieceKind::kEntry;
  Node node = -1;    // of kBlock and kSize
  Node folder = -1;  // of kEntry
  int64_t offset = 0, size = 0;
  std::string bytes;         // of kBlock
  std::string name;          // of kEntry: this name
  Node target = -1;          //   becomes this node, or is removed
  std::string removed_name;  //   and this name is removed at the same time
};

void ApplyEntry(const Piece& piece, std::map<std::string, Node>& names) {
  if (piece.target >= 0) {
    names[piece.name] = piece.target;
  } else {
    names.erase(piece.name);
  }
  if (!piece.removed_name.empty()) names.erase(piece.removed_name);
}

void ApplyData(const Piece& piece, char fill, std::string& content) {
  if (piece.kind == PieceKind::kSize) {
    content.resize(static_cast<size_t>(piece.size), fill);
    return;
  }
  const auto offset = static_cast<size_t>(piece.offset);
  if (offset >= content.size()) return;
  const size_t count = std::min(piece.bytes.size(), content.size() - offset);
  content.replace(offset, count, piece.bytes, 0, count);
}

// The disk, and the pieces that may or may not be on it.
class Disk {
 public:
  Disk(Tree tree, size_t block_bytes) : durable_(std::move(tree)), block_bytes_(block_bytes) {
    for (const auto& [node, entry] : durable_)
      sizes_[node] = static_cast<int64_t>(entry.content.size());
  }

  const std::vector<Piece>& pending() const { return pending_; }
  const Tree& durable() const { return durable_; }

  // Returns the durable content of a file, without a copy for each caller.
  ContentPtr DurableContent(Node node) const {
    ContentPtr& content = contents_[node];
    if (!content) content = std::make_shared<const Content>(durable_.at(node).content);
    return content;
  }

  void Execute(const FileOp& op) {
    switch (op.kind) {
      case OpKind::kCreate:
      case OpKind::kMake:
        durable_[op.node].is_folder = op.kind == OpKind::kMake;
        sizes_[op.node] = 0;
        [[fallthrough]];
      case OpKind::kAdd:
        AddEntry(op.folder, op.name, op.node);
        break;
      case OpKind::kRemove:
        AddEntry(op.folder, op.name, -1);
        break;
      case OpKind::kRename:
        Rename(op);
        break;
      case OpKind::kWrite:
        Write(op);
        break;
      case OpKind::kResize:
        pending_.push_back({.kind = PieceKind::kSize, .node = op.node, .size = op.size});
        sizes_[op.node] = op.size;
        break;
      case OpKind::kSync:
        Sync(op.node);
        break;
      case OpKind::kMark:
        break;
    }
  }

 private:
  void AddEntry(Node folder, const std::string& name, Node target,
                const std::string& removed_name = "") {
    pending_.push_back({.kind = PieceKind::kEntry,
                        .folder = folder,
                        .name = name,
                        .target = target,
                        .removed_name = removed_name});
  }

  void Rename(const FileOp& op) {
    if (op.folder == op.new_folder) {
      AddEntry(op.folder, op.new_name, op.node, op.name);
    } else {
      AddEntry(op.new_folder, op.new_name, op.node);
      AddEntry(op.folder, op.name, -1);
    }
  }

  void Write(const FileOp& op) {
    const auto end = op.offset + static_cast<int64_t>(op.bytes.size());
    if (end > sizes_[op.node]) {
      pending_.push_back({.kind = PieceKind::kSize, .node = op.node, .size = end});
      sizes_[op.node] = end;
    }
    for (int64_t at = op.offset; at < end;) {
      const auto block = static_cast<int64_t>(block_bytes_);
      const int64_t next = std::min(end, (at / block + 1) * block);
      pending_.push_back({.kind = PieceKind::kBlock,
                          .node = op.node,
                          .offset = at,
                          .bytes = op.bytes.substr(static_cast<size_t>(at - op.offset),
                                                   static_cast<size_t>(next - at))});
      at = next;
    }
  }

  void Sync(Node node) {
    if (node < 0) return;
    TreeNode& entry = durable_[node];
    contents_.erase(node);
    std::erase_if(pending_, [&](const Piece& piece) {
      if (piece.kind == PieceKind::kEntry) {
        if (piece.folder != node) return false;
        ApplyEntry(piece, entry.names);
      } else {
        if (piece.node != node) return false;
        ApplyData(piece, '\0', entry.content);
      }
      return true;
    });
  }

  Tree durable_;
  const size_t block_bytes_;
  std::vector<Piece> pending_;
  std::map<Node, int64_t> sizes_;  // as processes see them
  mutable std::map<Node, ContentPtr> contents_;
};

// A subset of the pending pieces.
struct Choice {
  std::string text;
  std::vector<bool> taken;
  bool garbage = false;  // missing bytes are garbage, not zeros
  bool torn = false;     // the last block that was taken is half there
};

class Choices {
 public:
  Choices(const std::vector<Piece>& pieces, const CrashOptions& options, size_t cut)
      : pieces_(pieces), random_(options.seed * 1000003 + cut) {
    const size_t count = pieces.size();
    Add("nothing unsynced", [](size_t) { return false; });
    if (count == 0) return;
    Add("everything", [](size_t) { return true; });
    Add("only names", [&](size_t i) { return Is(i, PieceKind::kEntry); });
    Add("only names and sizes", [&](size_t i) { return !Is(i, PieceKind::kBlock); });
    Add("only data", [&](size_t i) { return !Is(i, PieceKind::kEntry); });
    Add("names and blocks without sizes", [&](size_t i) { return !Is(i, PieceKind::kSize); });
    for (size_t k = 0; k < count; ++k) {
      const std::string number = std::to_string(k);
      Add("only piece " + number, [&](size_t i) { return i == k; });
      Add("all but piece " + number, [&](size_t i) { return i != k; });
      Add("names, sizes and piece " + number,
          [&](size_t i) { return i == k || !Is(i, PieceKind::kBlock); });
      Add("the first pieces, up to " + number, [&](size_t i) { return i <= k; });
      Add("the last pieces, from " + number, [&](size_t i) { return i >= k; });
    }
    Add("everything, last block torn", [](size_t) { return true; });
    choices_.back().torn = true;
    for (int r = 0; r < options.random_subsets; ++r)
      Add("random subset " + std::to_string(r), [&](size_t) { return random_() % 2 == 0; });
    const size_t all = choices_.size();
    for (size_t i = 1; i < all; ++i) {
      choices_.push_back(choices_[i]);
      choices_.back().garbage = true;
      choices_.back().text += ", missing bytes are garbage";
    }
  }

  const std::vector<Choice>& all() const { return choices_; }

 private:
  bool Is(size_t i, PieceKind kind) const { return pieces_[i].kind == kind; }

  template <typename Takes>
  void Add(std::string text, const Takes& takes) {
    Choice choice{.text = std::move(text)};
    choice.taken.resize(pieces_.size());
    for (size_t i = 0; i < pieces_.size(); ++i) choice.taken[i] = takes(i);
    choices_.push_back(std::move(choice));
  }

  const std::vector<Piece>& pieces_;
  std::mt19937_64 random_;
  std::vector<Choice> choices_;
};

// Builds states of one cut.
class StateBuilder {
 public:
  StateBuilder(const Disk& disk, const CrashOptions& options) : disk_(disk), options_(options) {}

  CrashState Build(const Choice& choice, size_t cut) const {
    CrashState state{.cut = cut, .choice = choice.text};
    AddFolder(kRoot, "", choice, state);
    return state;
  }

 private:
  void AddFolder(Node node, const std::string& path, const Choice& choice,
                 CrashState& state) const {
    std::map<std::string, Node> names = disk_.durable().at(node).names;
    for (size_t i = 0; i < choice.taken.size(); ++i) {
      const Piece& piece = disk_.pending()[i];
      if (choice.taken[i] && piece.kind == PieceKind::kEntry && piece.folder == node)
        ApplyEntry(piece, names);
    }
    for (const auto& [name, child] : names) {
      const std::string whole = path.empty() ? name : path + "/" + name;
      if (disk_.durable().at(child).is_folder) {
        state.folders.push_back(whole);
        AddFolder(child, whole, choice, state);
      } else {
        state.files[whole] =
            options_.is_ignored(whole, state.cut) ? ignored_ : ContentOf(child, choice);
      }
    }
  }

  ContentPtr ContentOf(Node node, const Choice& choice) const {
    bool is_durable = true;
    for (size_t i = 0; i < choice.taken.size(); ++i)
      is_durable &= !choice.taken[i] || disk_.pending()[i].node != node;
    if (is_durable) return disk_.DurableContent(node);
    std::string content = disk_.durable().at(node).content;
    const char fill = choice.garbage ? '\xA5' : '\0';
    const Piece* last = nullptr;
    for (size_t i = 0; i < choice.taken.size(); ++i) {
      const Piece& piece = disk_.pending()[i];
      if (!choice.taken[i] || piece.kind == PieceKind::kEntry || piece.node != node) continue;
      ApplyData(piece, fill, content);
      if (piece.kind == PieceKind::kBlock) last = &piece;
    }
    if (choice.torn && last != nullptr) {
      const size_t half = last->bytes.size() / 2;
      const size_t at = static_cast<size_t>(last->offset) + half;
      if (at < content.size()) {
        const size_t count = std::min(last->bytes.size() - half, content.size() - at);
        content.replace(at, count, count, fill);
      }
    }
    return std::make_shared<const Content>(std::move(content));
  }

  const Disk& disk_;
  const CrashOptions& options_;
  const ContentPtr ignored_ = std::make_shared<const Content>("");
};

uint64_t HashOf(const CrashState& state, int stage) {
  uint64_t hash = kFnvOffset + static_cast<uint64_t>(stage);
  for (const std::string& folder : state.folders) hash = Fnv1a64(folder + "/\n", hash);
  for (const auto& [path, content] : state.files) {
    hash = Fnv1a64(path + "\n" + std::to_string(content->hash), hash);
  }
  return hash;
}

}  // namespace

std::string CrashState::Describe(const std::vector<FileOp>& ops) const {
  std::string text = "power lost after operation " + std::to_string(cut);
  if (cut > 0) text += " (" + ops[cut - 1].text + ")";
  return text + "; on the disk: " + choice;
}

void CrashState::Materialize(const std::string& folder) const {
  std::filesystem::create_directories(folder);
  for (const std::string& path : folders)
    std::filesystem::create_directories(std::filesystem::path(folder) / path);
  for (const auto& [path, content] : files) WriteText(folder + "/" + path, content->bytes);
}

CrashCounts ForEachCrashState(const Tree& before, const std::vector<FileOp>& ops,
                              const CrashOptions& options,
                              const std::function<void(const CrashState&)>& visit) {
  CrashCounts counts{.operations = ops.size()};
  Disk disk(before, options.block_bytes);
  std::unordered_set<uint64_t> seen;
  for (size_t cut = 0; cut <= ops.size(); ++cut) {
    if (cut > 0) disk.Execute(ops[cut - 1]);
    const StateBuilder builder(disk, options);
    const Choices choices(disk.pending(), options, cut);
    for (const Choice& choice : choices.all()) {
      ++counts.candidates;
      const CrashState state = builder.Build(choice, cut);
      if (!seen.insert(HashOf(state, options.stage(cut))).second) continue;
      ++counts.distinct;
      visit(state);
    }
  }
  return counts;
}

std::map<std::string, std::set<size_t>> CompleteVersions(const Tree& before,
                                                         const std::vector<FileOp>& ops) {
  std::map<std::string, std::set<size_t>> versions;
  Tree tree = before;  // as processes see it
  std::map<Node, std::string> paths;
  const std::function<void(Node, const std::string&)> add = [&](Node node,
                                                                const std::string& path) {
    paths[node] = path;
    if (!tree[node].is_folder) versions[path].insert(Content(tree[node].content).hash);
    for (const auto& [name, child] : tree[node].names)
      add(child, path.empty() ? name : path + "/" + name);
  };
  add(kRoot, "");
  for (const FileOp& op : ops) {
    std::string& content = tree[op.node].content;
    if (op.kind == OpKind::kWrite) {
      const size_t end = static_cast<size_t>(op.offset) + op.bytes.size();
      if (end > content.size()) content.resize(end);
      content.replace(static_cast<size_t>(op.offset), op.bytes.size(), op.bytes);
    } else if (op.kind == OpKind::kResize) {
      content.resize(static_cast<size_t>(op.size));
    } else if (op.kind == OpKind::kMake || op.kind == OpKind::kRename) {
      const bool makes = op.kind == OpKind::kMake;
      const std::string& folder = paths[makes ? op.folder : op.new_folder];
      const std::string& name = makes ? op.name : op.new_name;
      paths[op.node] = folder.empty() ? name : folder + "/" + name;
      if (!makes) versions[paths[op.node]].insert(Content(content).hash);
    }
  }
  return versions;
}

}  // namespace carole::testing
