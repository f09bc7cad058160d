// NASNet-A (Zoph et al. 2018, "Learning Transferable Architectures") and PNASNet-5 (Liu et al.
// 2018, "Progressive Neural Architecture Search"), as TF-Slim defines them. The tables describe the
// cells and the stacks of cells (cell_stack.h). A row of a cell is a combination of two branches,
// {operation, number of the state that it reads}.
#include "nets/cell_stack.h"
#include "nets/nets.h"

namespace carole::nets {
namespace {

constexpr CellOp kId{CellOp::kIdentity};
constexpr CellOp kSep3{CellOp::kSeparable, 3}, kSep5{CellOp::kSeparable, 5},
    kSep7{CellOp::kSeparable, 7};
constexpr CellOp kAvg3{CellOp::kAverage, 3}, kMax3{CellOp::kMax, 3};

// clang-format off
constexpr CellDefinition kNormal{.combinations = {{{kSep5, 0}, {kSep3, 1}},
                                            {{kSep5, 1}, {kSep3, 1}},
                                            {{kAvg3, 0}, {kId, 1}},
                                            {{kAvg3, 1}, {kAvg3, 1}},
                                            {{kSep3, 0}, {kId, 0}}},
                           .first_output = 1};
constexpr CellDefinition kReduction{.combinations = {{{kSep5, 0}, {kSep7, 1}},
                                               {{kMax3, 0}, {kSep7, 1}},
                                               {{kAvg3, 0}, {kSep5, 1}},
                                               {{kId, 3}, {kAvg3, 2}},
                                               {{kSep3, 2}, {kMax3, 0}}},
                              .first_output = 3};
constexpr CellDefinition kProgressive{.combinations = {{{kSep5, 1}, {kMax3, 1}},
                                                 {{kSep7, 0}, {kMax3, 0}},
                                                 {{kSep5, 0}, {kSep3, 0}},
                                                 {{kSep3, 4}, {kMax3, 0}},
                                                 {{kSep3, 1}, {kId, 0}}},
                                .first_output = 2};

constexpr CellStackOptions kNasNetCifar{
    .filters = 32, .cells = 18, .stem_filters = 96, .cell = &kNormal, .reduction = &kReduction,
    .skip_reduction_input = false, .small_images = true, .drop_path_keep = 0.6,
    .drop_path_steps = 937'500, .dense_keep = 1,
    .batch_norm = {.decay = 0.9, .epsilon = 1e-5, .gamma = true}};
constexpr CellStackOptions kNasNetMobile{
    .filters = 44, .cells = 12, .stem_filters = 32, .cell = &kNormal, .reduction = &kReduction,
    .skip_reduction_input = false};
constexpr CellStackOptions kNasNetLarge{
    .filters = 168, .cells = 18, .stem_filters = 96, .cell = &kNormal, .reduction = &kReduction,
    .drop_path_keep = 0.7};
constexpr CellStackOptions kPnasNetMobile{
    .filters = 54, .cells = 9, .stem_filters = 32, .cell = &kProgressive};
constexpr CellStackOptions kPnasNetLarge{
    .filters = 216, .cells = 12, .stem_filters = 96, .cell = &kProgressive, .drop_path_keep = 0.6};
// clang-format on

}  // namespace

NetOutput NasNetCifar(NetBuilder& b, ValueId x) { return BuildCellStack(b, x, kNasNetCifar); }
NetOutput NasNetMobile(NetBuilder& b, ValueId x) { return BuildCellStack(b, x, kNasNetMobile); }
NetOutput NasNetLarge(NetBuilder& b, ValueId x) { return BuildCellStack(b, x, kNasNetLarge); }
NetOutput PnasNetMobile(NetBuilder& b, ValueId x) { return BuildCellStack(b, x, kPnasNetMobile); }
NetOutput PnasNetLarge(NetBuilder& b, ValueId x) { return BuildCellStack(b, x, kPnasNetLarge); }

}  // namespace carole::nets
