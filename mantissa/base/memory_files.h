#pragma once

// For tests: a file system that forgets what was not synced.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/file_system.h"
#include "mantissa/base/random.h"

namespace mantissa {

/// A file system in memory which knows what would survive a crash: the bytes of a file that were
/// synced, and the names in a folder that were synced. Only what POSIX promises holds: changes of
/// one folder may reach the device in any subset, and a name may arrive before the bytes.
class MemoryFiles : public FileSystem {
 public:
  enum class Loss {
    nothing,   // the process died, the machine did not
    unsynced,  // all that was not synced
    random,    // any part of what was not synced: subsets of names, prefixes and zeros of bytes
  };

  MemoryFiles() { nodes_[kRoot] = Node{.kind = Kind::folder}; }

  /// What is found after the machine has come up again. Open files are gone.
  void crash(Loss loss, Random& random) {
    descriptors_.clear();
    for (auto& [id, node] : nodes_) {
      if (loss == Loss::unsynced) {
        node.names = node.synced_names;
        node.bytes = node.synced_bytes;
      } else if (loss == Loss::random) {
        lose_some(node, random);
      }
      node.synced_names = node.names;
      node.synced_bytes = node.bytes;
      node.changes.clear();
    }
  }

  /// The bytes of a file, to look at and to damage; synced or not.
  std::string& bytes(const std::filesystem::path& path) {
    const std::optional<int64_t> id = find(path);
    MANTISSA_CHECK(id && nodes_[*id].kind == Kind::file, IoError, "no file ", path.string());
    return nodes_[*id].bytes;
  }

  /// What free_bytes() answers.
  void set_free_bytes(int64_t free) { free_ = free; }

  size_t num_open() const { return descriptors_.size(); }

  int open(const std::filesystem::path& path, Open mode) override {
    std::optional<int64_t> id = find(path);
    const std::optional<int64_t> folder = find(parent(path));
    if (id && mode == Open::create) {
      return -EEXIST;
    }
    if (!id && (mode == Open::create || mode == Open::append)) {
      if (!folder) {
        return -ENOENT;
      }
      id = add(Node{.kind = Kind::file});
      change(*folder, {{path.filename(), *id}});
    }
    if (!id) {
      return -ENOENT;
    }
    if (mode == Open::folder && nodes_[*id].kind != Kind::folder) {
      return -ENOTDIR;
    }
    descriptors_[next_descriptor_] = *id;
    return next_descriptor_++;
  }
  int64_t write(int fd, const void* data, size_t size) override {
    at(fd).bytes.append(static_cast<const char*>(data), size);
    return static_cast<int64_t>(size);
  }
  int64_t read(int fd, void* data, size_t size, int64_t offset) override {
    const std::string& bytes = at(fd).bytes;
    if (offset >= static_cast<int64_t>(bytes.size())) {
      return 0;
    }
    return static_cast<int64_t>(bytes.copy(static_cast<char*>(data), size, offset));
  }
  int64_t size(int fd) override {
    return at(fd).kind == Kind::folder ? -EISDIR : static_cast<int64_t>(at(fd).bytes.size());
  }
  int truncate(int fd, int64_t size) override {
    at(fd).bytes.resize(static_cast<size_t>(size));
    return 0;
  }
  int sync(int fd) override {
    Node& node = at(fd);
    node.synced_bytes = node.bytes;
    node.synced_names = node.names;
    node.changes.clear();
    return 0;
  }
  int close(int fd) override { return descriptors_.erase(fd) == 1 ? 0 : -EBADF; }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    const std::optional<int64_t> source = find(from);
    const std::optional<int64_t> target = find(to);
    const std::optional<int64_t> folder = find(parent(from));
    if (!source || !find(parent(to))) {
      return -ENOENT;
    }
    if (folder != find(parent(to))) {
      return -EXDEV;
    }
    if (target && !nodes_[*target].names.empty()) {
      return -ENOTEMPTY;
    }
    if (target && nodes_[*target].kind != nodes_[*source].kind) {
      return nodes_[*target].kind == Kind::folder ? -EISDIR : -ENOTDIR;
    }
    change(*folder, {{from.filename(), kNone}, {to.filename(), *source}});
    return 0;
  }
  int remove(const std::filesystem::path& path) override {
    const std::optional<int64_t> id = find(path);
    if (!id) {
      return -ENOENT;
    }
    if (!nodes_[*id].names.empty()) {
      return -ENOTEMPTY;
    }
    change(*find(parent(path)), {{path.filename(), kNone}});
    return 0;
  }
  int make_folder(const std::filesystem::path& path) override {
    if (find(path)) {
      return -EEXIST;
    }
    const std::optional<int64_t> folder = find(parent(path));
    if (!folder) {
      return -ENOENT;
    }
    const int64_t id = add(Node{.kind = Kind::folder});
    change(*folder, {{path.filename(), id}});
    return 0;
  }
  int list(const std::filesystem::path& path, std::vector<std::string>& names) override {
    const std::optional<int64_t> id = find(path);
    if (!id || nodes_[*id].kind != Kind::folder) {
      return id ? -ENOTDIR : -ENOENT;
    }
    for (const auto& [name, child] : nodes_[*id].names) {
      names.push_back(name);
    }
    return 0;
  }
  int kind(const std::filesystem::path& path, Kind& kind) override {
    const std::optional<int64_t> id = find(path);
    if (!id) {
      return -ENOENT;
    }
    kind = nodes_[*id].kind;
    return 0;
  }
  int64_t free_bytes(const std::filesystem::path&) override { return free_; }

 private:
  using Names = std::map<std::string, int64_t>;
  using Change = std::vector<std::pair<std::string, int64_t>>;  // happens whole; kNone: removed

  static constexpr int64_t kRoot = 0;
  static constexpr int64_t kNone = -1;

  struct Node {
    Kind kind = Kind::file;
    std::string bytes;
    std::string synced_bytes;
    Names names;
    Names synced_names;
    std::vector<Change> changes;  // since the last sync
  };

  static std::filesystem::path parent(const std::filesystem::path& path) {
    return path.lexically_normal().parent_path();
  }

  static void apply(Names& names, const Change& change) {
    for (const auto& [name, id] : change) {
      if (id == kNone) {
        names.erase(name);
      } else {
        names[name] = id;
      }
    }
  }

  static void lose_some(Node& node, Random& random) {
    node.names = node.synced_names;
    for (const Change& change : node.changes) {
      if (random.below(2) == 0) {
        apply(node.names, change);
      }
    }
    if (node.bytes == node.synced_bytes) {
      return;
    }
    const size_t written = node.bytes.size();
    const auto kept_end = std::mismatch(node.bytes.begin(), node.bytes.end(),
                                        node.synced_bytes.begin(), node.synced_bytes.end())
                              .first;
    const auto stable = static_cast<size_t>(kept_end - node.bytes.begin());
    const size_t kept = stable + random.below(written - stable + 1);
    switch (random.below(4)) {
      case 0:
        node.bytes = node.synced_bytes;
        break;
      case 1:
        node.bytes.resize(kept);
        break;
      case 2:  // the length has arrived, not all of the bytes
        node.bytes.resize(kept);
        node.bytes.resize(written, '\0');
        break;
      default:
        break;
    }
  }

  std::optional<int64_t> find(const std::filesystem::path& path) const {
    int64_t id = kRoot;
    for (const std::filesystem::path& part : path.lexically_normal()) {
      if (part.empty() || part == "." || part == "/") {
        continue;
      }
      const Names& names = nodes_.at(id).names;
      const auto found = names.find(part.string());
      if (found == names.end()) {
        return std::nullopt;
      }
      id = found->second;
    }
    return id;
  }

  int64_t add(Node node) {
    const auto id = static_cast<int64_t>(nodes_.size());
    nodes_[id] = std::move(node);
    return id;
  }

  void change(int64_t folder, Change change) {
    apply(nodes_[folder].names, change);
    nodes_[folder].changes.push_back(std::move(change));
  }

  Node& at(int fd) { return nodes_.at(descriptors_.at(fd)); }

  std::map<int64_t, Node> nodes_;
  std::map<int, int64_t> descriptors_;
  int next_descriptor_ = 3;
  int64_t free_ = int64_t{1} << 40;
};

}  // namespace mantissa
