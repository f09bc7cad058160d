// Reads HDF5 files that other programs may have written. Harmless ones are read, dangerous ones are
// refused.
#include "io/checkpoint/hdf5.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <fstream>
#include <functional>

#include "src/core/error.h"
#include "tests/support/temporary_folder.h"

namespace carole::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

class Hdf5Test : public ::testing::Test {
 protected:
  // Makes a file with the HDF5 library itself. `fill` may leave identifiers open.
  void Make(const std::function<void(hid_t)>& fill,
            H5F_libver_t oldest_format = H5F_LIBVER_EARLIEST) {
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, oldest_format, H5F_LIBVER_LATEST);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    const hid_t file = H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
    fill(file);
    H5Fclose(file);
    H5Pclose(access);
  }

  // Makes a dataset "x" of 4x256 floats, all 1.5, with these creation properties.
  void MakeDataset(const std::function<void(hid_t)>& set) {
    Make([&](hid_t file) {
      const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
      set(creation);
      const hsize_t dims[] = {4, 256};
      const hid_t data = H5Dcreate2(file, "x", H5T_IEEE_F32BE, H5Screate_simple(2, dims, nullptr),
                                    H5P_DEFAULT, creation, H5P_DEFAULT);
      const std::vector<float> values(1024, 1.5f);
      H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    });
  }

  void ExpectRefused(const std::string& object, const std::string& text) {
    const Hdf5File file = Hdf5File::Open(path_);
    EXPECT_THAT([&] { file.ReadFloats(object); },
                ThrowsMessage<DataError>(HasSubstr(path_ + ": " + object + ": " + text)));
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/file.h5";
};

void SetChunks(hid_t creation) {
  const hsize_t chunk[] = {2, 256};
  H5Pset_chunk(creation, 2, chunk);
}

TEST_F(Hdf5Test, ReadsDeflateShuffleAndBigEndian) {
  MakeDataset([](hid_t creation) {
    SetChunks(creation);
    H5Pset_shuffle(creation);
    H5Pset_deflate(creation, 9);
  });
  const Hdf5File file = Hdf5File::Open(path_);
  EXPECT_EQ(file.ShapeOf("/x"), (Shape{4, 256}));
  EXPECT_EQ(file.ReadFloats("/x"), std::vector<float>(1024, 1.5f));
}

// As h5py writes with libver="latest".
TEST_F(Hdf5Test, ReadsTheNewestFormat) {
  Make(
      [](hid_t file) {
        const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
        SetChunks(creation);
        const hsize_t dims[] = {4, 256};
        const hid_t data = H5Dcreate2(file, "x", H5T_IEEE_F32LE, H5Screate_simple(2, dims, nullptr),
                                      H5P_DEFAULT, creation, H5P_DEFAULT);
        const std::vector<float> values(1024, 1.5f);
        H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
      },
      H5F_LIBVER_LATEST);
  EXPECT_EQ(Hdf5File::Open(path_).ReadFloats("/x"), std::vector<float>(1024, 1.5f));
}

TEST_F(Hdf5Test, NamesH5repackForFormatsOfTheFuture) {
  Make([](hid_t) {});
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8).put(9);  // the version of the format
  file.close();
  EXPECT_THAT([&] { Hdf5File::Open(path_); }, ThrowsMessage<DataError>(HasSubstr("h5repack")));
}

TEST_F(Hdf5Test, ListsAllDatasets) {
  Make([](hid_t file) {
    const hid_t group = H5Gcreate2(file, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t scalar = H5Screate(H5S_SCALAR);
    H5Dcreate2(group, "double", H5T_IEEE_F64LE, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dcreate2(file, "count", H5T_STD_U8LE, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(file, "/", group, "cycle", H5P_DEFAULT, H5P_DEFAULT);
  });
  {
    const Hdf5File file = Hdf5File::Open(path_);
    EXPECT_THAT(file.Datasets(), ElementsAre("/a/double", "/count"));
    EXPECT_EQ(file.TypeOf("/a/double"), "float64");
    EXPECT_EQ(file.TypeOf("/count"), "uint8");
  }
  Make([](hid_t file) { H5Lcreate_soft("/x", file, "soft", H5P_DEFAULT, H5P_DEFAULT); });
  EXPECT_THAT([&] { Hdf5File::Open(path_).Datasets(); },
              ThrowsMessage<DataError>(HasSubstr("/soft: is a soft or external link")));
}

TEST_F(Hdf5Test, RefusesOtherFilters) {
  MakeDataset([](hid_t creation) {
    SetChunks(creation);
    H5Pset_fletcher32(creation);
  });
  ExpectRefused("/x",
                "unsupported filter: got number 3, want none, deflate or shuffle; rewrite the file "
                "with `h5repack -f NONE");
}

TEST_F(Hdf5Test, RefusesExternalStorage) {
  const std::string other = folder_.path() + "/other.bin";
  MakeDataset([&](hid_t creation) { H5Pset_external(creation, other.c_str(), 0, H5F_UNLIMITED); });
  ExpectRefused("/x", "data is stored in another file");
}

TEST_F(Hdf5Test, RefusesSoftAndExternalLinks) {
  Make([&](hid_t file) {
    H5Lcreate_external("/etc/other.h5", "/x", file, "outside", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/outside", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
  });
  ExpectRefused("/outside", "is a soft or external link");
  ExpectRefused("/soft", "is a soft or external link");
  ExpectRefused("/absent", "is missing");
  ExpectRefused("/", "is not a dataset");
}

TEST_F(Hdf5Test, RefusesShapesThatTheFileCannotHold) {
  Make([&](hid_t file) {
    const hsize_t large[] = {1'000'000, 1'000'000};
    const hsize_t too_large[] = {hsize_t{1} << 40, hsize_t{1} << 40};
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    SetChunks(creation);
    for (const auto& [name, dims] : {std::pair{"large", large}, {"too_large", too_large}}) {
      H5Dcreate2(file, name, H5T_IEEE_F32LE, H5Screate_simple(2, dims, nullptr), H5P_DEFAULT,
                 creation, H5P_DEFAULT);
    }
    const hsize_t many[] = {1, 1, 1, 1, 1, 1};
    H5Dcreate2(file, "many", H5T_IEEE_F32LE, H5Screate_simple(6, many, nullptr), H5P_DEFAULT,
               H5P_DEFAULT, H5P_DEFAULT);
    H5Dcreate2(file, "integers", H5T_STD_I32LE, H5Screate(H5S_SCALAR), H5P_DEFAULT, H5P_DEFAULT,
               H5P_DEFAULT);
  });
  ExpectRefused("/large", "shape [1000000,1000000] needs 4000000000000 bytes: got 0 stored bytes");
  ExpectRefused("/too_large", "unsupported shape: its 2 dimensions are too many or too large");
  ExpectRefused("/many", "unsupported shape: its 6 dimensions are too many or too large");
  ExpectRefused("/integers", "the elements are not floating-point numbers");
}

TEST_F(Hdf5Test, ReadsStringListsOfAllForms) {
  Make([](hid_t file) {
    const hid_t variable = H5Tcopy(H5T_C_S1);
    H5Tset_size(variable, H5T_VARIABLE);
    const hid_t fixed = H5Tcopy(H5T_C_S1);
    H5Tset_size(fixed, 3);
    H5Tset_strpad(fixed, H5T_STR_NULLPAD);
    const auto add = [&](const char* name, hid_t type, hsize_t count, const void* data) {
      const hid_t space = H5Screate_simple(1, &count, nullptr);
      H5Awrite(H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT), type, data);
    };
    const char* const texts[] = {"long one", "", "b"};
    add("variable", variable, 3, texts);
    constexpr char kFixed[] = {'a', 'b', 'c', 'd', 0, 0}, kSplit[] = {'d', 0, 0, 'e', 'f', 0};
    add("fixed", fixed, 2, kFixed);
    add("split0", fixed, 1, "abc");
    add("split1", fixed, 2, kSplit);
    const double nothing = 0;
    add("empty", H5T_IEEE_F64LE, 0, &nothing);
    add("number", H5T_IEEE_F64LE, 1, &nothing);
  });
  EXPECT_THAT(
      [&] { Hdf5File::Open(path_).GetStringList("/", "variable"); },
      ThrowsMessage<DataError>(HasSubstr("/, attribute variable: has strings of variable")));
  const Hdf5File file = Hdf5File::Open(path_, HeapStrings::kAllow);
  EXPECT_THAT(file.GetStringList("/", "variable"), ElementsAre("long one", "", "b"));
  EXPECT_THAT(file.GetStringList("/", "fixed"), ElementsAre("abc", "d"));
  EXPECT_THAT(file.GetStringList("/", "split"), ElementsAre("abc", "d", "ef"));
  EXPECT_THAT(file.GetStringList("/", "empty"), IsEmpty());
  EXPECT_THAT([&] { file.GetStringList("/", "number"); },
              ThrowsMessage<DataError>(HasSubstr("/, attribute number: is not a string")));
  EXPECT_THAT([&] { file.GetStringList("/", "absent"); },
              ThrowsMessage<DataError>(HasSubstr("/, attribute absent: is missing")));
  EXPECT_THROW(file.GetInt("/", "number"), DataError);
}

TEST_F(Hdf5Test, SplitsLongListsAsKerasDoes) {
  std::vector<std::string> names;
  for (int i = 0; i < 3000; ++i)
    names.push_back("layer_with_a_rather_long_name_" + std::to_string(i));
  Hdf5File file = Hdf5File::Create(path_);
  file.SetStringList("/", "names", names);
  file.SetStringList("/", "none", {});
  file.Close();
  const Hdf5File again = Hdf5File::Open(path_);
  EXPECT_FALSE(again.HasAttribute("/", "names"));
  EXPECT_TRUE(again.HasAttribute("/", "names1"));
  EXPECT_EQ(again.GetStringList("/", "names"), names);
  EXPECT_THAT(again.GetStringList("/", "none"), IsEmpty());
}

// A checkpoint may be as large as half of the memory, so a file must not be buffered.
TEST_F(Hdf5Test, WritesDataBeforeTheFileIsClosed) {
  const std::vector<float> data(1 << 20, 0.5f);
  Hdf5File file = Hdf5File::Create(path_);
  for (const char* name : {"/a", "/b"}) file.WriteFloats(name, {1 << 20}, data);
  EXPECT_GE(std::filesystem::file_size(path_), 2 * data.size() * sizeof(float));
  file.Close();
  EXPECT_EQ(Hdf5File::Open(path_).ReadFloats("/b"), data);
}

TEST_F(Hdf5Test, DeletesAFileThatWasNotClosed) {
  { Hdf5File::Create(path_).CreateGroup("/a/b"); }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_THAT([&] { Hdf5File::Create(folder_.path() + "/no/f.h5").Close(); },
              ThrowsMessage<DiskError>(HasSubstr("cannot create: No such file or directory")));
}

// A training saves again and again, and the ledger of its epochs has another length each time.
TEST_F(Hdf5Test, KeepsNoMemoryOfClosedFiles) {
  for (size_t bytes = 1000; bytes < 60'000; bytes += 1000) {
    const std::string text(bytes, 'x');
    Hdf5File file = Hdf5File::Create(path_);
    file.SetFixedString("/", "text", text);
    file.Close();
    EXPECT_EQ(Hdf5File::Open(path_).GetString("/", "text"), text);
  }
  size_t regular = 0, arrays = 0, blocks = 0, factories = 0;
  H5get_free_list_sizes(&regular, &arrays, &blocks, &factories);
  EXPECT_LT(blocks, 10'000);  // the other lists also count objects that are in use
}

}  // namespace
}  // namespace carole::io
