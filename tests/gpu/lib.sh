# Unpacks what tests/gpu/pack made and makes it callable. Sets PATH and the library paths; makes "$results".
mkdir -p "$results"
unpacked=${GPU_TEST_UNPACKED:-/tmp/assay-gpu}
if [ ! -d "$unpacked/bin" ]; then
  mkdir -p "$unpacked"
  tar -C "$unpacked" -xJf build/gpu/assay-gpu.tar.xz
fi
export PATH=$unpacked/bin:$PATH
export LD_LIBRARY_PATH=$unpacked/lib:${LD_LIBRARY_PATH:-}
# cuBLASLt: the toolkit's, or the one that PyTorch brought.
if [ -z "${CUBLASLT_FOLDER:-}" ]; then
  for folder in /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu $(python3 - 2>/dev/null <<'P'
import glob, site
for root in site.getsitepackages():
    for name in glob.glob(root + "/nvidia/*/lib/libcublasLt.so.13"):
        print(name.rsplit("/", 1)[0])
P
  ); do
    if [ -e "$folder/libcublasLt.so.13" ]; then export CUBLASLT_FOLDER=$folder; break; fi
  done
fi
