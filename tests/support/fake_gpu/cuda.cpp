// A fake libcuda.so.1, the library of the NVIDIA driver. To the CUDA runtime it is too old, which
// the CUDA backend reports. The emulated GPU only needs its presence.
extern "C" {

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) {
  *version = 9000;
  return 0;
}

}  // extern "C"
