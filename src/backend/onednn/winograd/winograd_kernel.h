// Shared by the Winograd kernels: the partition into tiles, the batched matrix products, and the
// loops over threads. Private to winograd.cpp, which explains the algorithm.
#pragma once

#include <omp.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "src/backend/onednn/kernels/onednn.h"
#include "src/backend/onednn/winograd/winograd_vector.h"
#include "src/core/divide_up.h"
#include "src/core/error.h"
#include "src/tensor/buffer.h"

namespace carole::onednn {

// The sizes of a batch of maps (N,C,H,W) in blocks of `lanes` channels.
struct Maps {
  Maps(const Shape& s, int64_t lanes)
      : images(s[0]),
        channels(s[1]),
        height(s[2]),
        width(s[3]),
        lanes(lanes),
        blocks(s[1] / lanes) {}
  int64_t Offset(int64_t image, int64_t block) const {
    return (image * blocks + block) * height * width * lanes;
  }
  int64_t images, channels, height, width, lanes, blocks;
};

// The partition of a batch of maps into 4x4 tiles. Each team of threads gets a contiguous range of
// rows of tiles and works through it in blocks of rows.
struct Tiles {
  Tiles(const Maps& maps, int64_t teams, int64_t floats_per_tile, int64_t filter_floats)
      : rows(DivideUp(maps.height, kWinogradTile)),
        columns(DivideUp(maps.width, kWinogradTile)),
        all_rows(maps.images * rows),
        rows_per_team(DivideUp(all_rows, teams)) {
    // A block should be small enough to stay in the core's cache between the three phases. But the
    // transformed filters are read once for each block: if they are larger than that cache, a block
    // has enough tiles to be as large as they are.
    constexpr int64_t kCacheFloats = 3 << 16;
    const int64_t wanted = std::max(kCacheFloats, filter_floats) / (floats_per_tile * columns);
    const int64_t most = std::clamp(wanted, int64_t{1}, rows_per_team);
    rows_per_block = DivideUp(rows_per_team, DivideUp(rows_per_team, most));
  }
  int64_t per_block() const { return rows_per_block * columns; }

  int64_t rows, columns;  // tiles in one map
  int64_t all_rows;       // rows of tiles in all images
  int64_t rows_per_team, rows_per_block;
};

// The descriptor of a stack of 36 matrices, one for each point. It must be dense; for other strides
// oneDNN falls back to slower products.
inline Md Stack(int64_t rows, int64_t columns, bool transposed = false) {
  const auto strides = transposed ? dnnl::memory::dims{rows * columns, 1, rows}
                                  : dnnl::memory::dims{rows * columns, columns, 1};
  return Md({kWinogradPoints, rows, columns}, dnnl::memory::data_type::f32, strides);
}

// A batched matrix product: c = a b, or c += a b if `accumulate` is set, for each of the 36 points.
// Uses the number of threads that omp_set_num_threads() set before the constructor.
class Products {
 public:
  Products(const Md& a, const Md& b, const Md& c, bool accumulate) : a_(a), b_(b), c_(c) {
    dnnl::primitive_attr attributes = UserScratchpad();
    dnnl::post_ops ops;
    if (accumulate) ops.append_sum(1.f);
    attributes.set_post_ops(ops);
    const dnnl::matmul::primitive_desc pd(Engine(), a, b, c, attributes);
    product_ = dnnl::matmul(pd);
    scratch_ = pd.scratchpad_desc();
  }
  size_t scratch_bytes() const { return scratch_.get_size(); }

  // Sets the memory of the next team.
  void AddTeam(float* a, float* b, float* c, std::byte* scratch) {
    Team team{.stream = dnnl::stream(Engine()), .memories = {}, .arguments = {}};
    team.memories = {
        {a_, Engine(), a}, {b_, Engine(), b}, {c_, Engine(), c}, {scratch_, Engine(), scratch}};
    constexpr int kNames[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    for (size_t i = 0; i < team.memories.size(); ++i)
      team.arguments.push_back({kNames[i], team.memories[i].get()});
    teams_.push_back(std::move(team));
  }

  // Computes the products of one team. Several teams may call this at the same time. Throws
  // DeviceError if oneDNN fails.
  void Run(int team) const {
    const Team& t = teams_[team];
    const dnnl_status_t status = dnnl_primitive_execute(
        product_.get(), t.stream.get(), static_cast<int>(t.arguments.size()), t.arguments.data());
    if (status != dnnl_success) {
      throw DeviceError(
          fmt::format("[onednn] 3x3 convolution (Winograd): matrix product failed with status {}",
                      static_cast<int>(status)));
    }
  }

 private:
  struct Team {
    dnnl::stream stream;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> arguments;
  };

  Md a_, b_, c_, scratch_;
  dnnl::matmul product_;
  std::vector<Team> teams_;
};

// Base class of the Winograd kernels: workspace and loops. Either all threads are one team, or each
// thread is a team of its own, so that the tiles that it transforms stay in its core's cache.
class WinogradKernel : public Kernel {
 protected:
  WinogradKernel(const OpSpec& spec, int threads, int teams)
      : lanes_(ChannelBlock()), threads_(threads), teams_(teams), team_size_(threads / teams) {
    input_layouts_.resize(spec.inputs.size());
    output_layouts_.resize(spec.outputs.size());
    for (size_t i = 0; i < spec.inputs.size(); ++i)
      input_layouts_[i] =
          spec.inputs[i].shape.rank() == 4 ? BlockedLayout(spec.inputs[i]) : Layout::RowMajor();
    omp_set_num_threads(team_size_);
  }

  Layout BlockedLayout(const TensorSpec& map) const {
    return ToLayout(InChannelBlocks(map.shape, DataType(map.dtype), lanes_), map.shape);
  }

  // A part of the workspace: `bytes` bytes for each team. The teams' pieces follow each other.
  struct WorkspacePart {
    size_t offset = 0, bytes = 0;
  };
  WorkspacePart Reserve(size_t bytes, int teams) {
    const WorkspacePart part{workspace_bytes_, AlignUp(bytes)};
    workspace_bytes_ += part.bytes * static_cast<size_t>(teams);
    return part;
  }
  WorkspacePart ReserveStack(int64_t rows, int64_t columns, int teams) {
    return Reserve(sizeof(float) * static_cast<size_t>(kWinogradPoints * rows * columns), teams);
  }
  std::byte* BytesAt(const WorkspacePart& part, int team) const {
    return memory_.workspace + part.offset + static_cast<size_t>(team) * part.bytes;
  }
  float* At(const WorkspacePart& part, int team = 0) const {
    return reinterpret_cast<float*>(BytesAt(part, team));
  }

  // Calls work(team) for all teams in parallel. Rethrows the last exception of a team.
  template <typename F>
  void ForTeams(const F& work) {
    omp_set_num_threads(team_size_);
    if (teams_ == 1) return work(0);
    std::exception_ptr problem;  // exceptions must not leave the parallel region
#pragma omp parallel for num_threads(teams_) schedule(static, 1)
    for (int team = 0; team < teams_; ++team) {
      try {
        work(team);
      } catch (...) {
#pragma omp critical(winograd_problem)
        problem = std::current_exception();
      }
    }
    if (problem) std::rethrow_exception(problem);
  }

  // Calls work(begin, end) for ranges of the pairs of channels, for the transforms of filters.
  template <typename F>
  void ForPairs(int64_t pairs, const F& work) const {
    constexpr int64_t kPiece = 1024;
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t begin = 0; begin < pairs; begin += kPiece)
      work(begin, std::min(begin + kPiece, pairs));
  }

  // Calls work(image, row of tiles in the image, channel block, index of the row's first tile in
  // the block of tiles) for the block of tiles that begins at first_row. Rows from end_row on are
  // filler; their image is -1.
  template <typename F>
  void ForRows(const Tiles& tiles, int64_t first_row, int64_t end_row, int64_t channel_blocks,
               const F& work) const {
#pragma omp parallel for if (team_size_ > 1) num_threads(team_size_) schedule(static)
    for (int64_t i = 0; i < tiles.rows_per_block * channel_blocks; ++i) {
      const int64_t row_index = i / channel_blocks, row = first_row + row_index;
      work(row < end_row ? row / tiles.rows : -1, row % tiles.rows, i % channel_blocks,
           row_index * tiles.columns);
    }
  }

  // Transforms the tiles of such a block into a stack. Row r of an image's tiles begins at pixel
  // row 4 r - top, each row at pixel column -left. Rows from end_row on become zeros.
  template <typename T>
  void ReadTiles(const Tiles& tiles, const Maps& maps, const Tensor& tensor,
                 decltype(WinogradTransforms<T>::input) transform, int64_t first_row,
                 int64_t end_row, int64_t top, int64_t left, float* to) const {
    const T* from = tensor.as<T>();
    const int64_t tile_stride = maps.channels, point_stride = tiles.per_block() * tile_stride;
    ForRows(tiles, first_row, end_row, maps.blocks,
            [&](int64_t image, int64_t row, int64_t block, int64_t row_index) {
              transform(from + maps.Offset(std::max(image, int64_t{0}), block),
                        {.height = maps.height,
                         .width = maps.width,
                         .y = image < 0 ? maps.height : row * kWinogradTile - top,
                         .x = -left,
                         .tiles = tiles.columns},
                        to + row_index * tile_stride + block * maps.lanes, point_stride,
                        tile_stride);
            });
  }

  // Calls work(first row, end of the team's rows) for each of the team's blocks of tiles.
  template <typename F>
  static void ForBlocks(const Tiles& tiles, int team, const F& work) {
    const int64_t begin = team * tiles.rows_per_team,
                  end = std::min(begin + tiles.rows_per_team, tiles.all_rows);
    for (int64_t row = begin; row < end; row += tiles.rows_per_block) work(row, end);
  }

  int64_t lanes_;  // lanes of a vector = channels of a block
  int threads_, teams_, team_size_;
  KernelMemory memory_;
};

}  // namespace carole::onednn
