"""Memory: the C library told to keep what tensors leave, oneDNN not to keep all it has made, and errors that say it ran out."""

import ctypes
import sys

import torch

# <malloc.h> of glibc
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """From now on, memory that this process frees stays with it and is used again.

    glibc gives blocks over 32 MB back to the system at once and takes new ones, zeroed page by page: a twentieth of the time
    of training a small Transformer on two cores. Does nothing where the C library is another.
    """
    library = _glibc()
    if library is None:
        return
    # Some versions refuse (0) a threshold above 32 MiB. Without one, the other would only switch glibc's own adaptation off.
    if library.mallopt(_MMAP_THRESHOLD, 1 << 30) or library.mallopt(_MMAP_THRESHOLD, 1 << 25):
        library.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


def few_kernels(training: bool = False) -> None:
    """From now on, which must be before the first product, oneDNN keeps the kernels of a few shapes.

    Batches have a shape for each length and number of rows, and the next one with the same is far away: what is kept is used by
    the layers and steps of one batch. The thousands that are kept otherwise are small pieces in between tensors, which leave holes
    that the next tensors do not fit into. Translation's memory grows to more than twice of what it is without, for 100,000 lines;
    training's too, and as each tensor's place is looked for among all the holes, training is a sixth slower after some minutes.
    """
    library = _glibc()
    if library is not None:
        kept = b"32" if training else b"256"
        for name, most in ((b"ONEDNN_PRIMITIVE_CACHE_CAPACITY", kept), (b"LRU_CACHE_CAPACITY", b"16")):  # the second is torch's
            library.setenv(name, most, 0)  # where it is set already, it stays


def return_fragments() -> None:
    """Give the system what of freed memory lies between pieces in use.

    Small pieces that stay lie in between tensors that do not, until no hole is large enough for the next tensor.
    Costs a tenth of a second, most of it later, for zeroed pages. Does nothing where the C library is another.
    """
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def out_of_memory(error: Exception) -> bool:
    """Whether that is what an error is about."""
    message = str(error).lower()
    # The CPU allocator has no class of its own for it.
    # alloc_failed: cuBLAS and cuDNN, of their workspaces; the others: oneDNN, which does not say why, and the C++ library.
    told = ("allocate memory", "enough memory", "alloc_failed", "create a primitive", "execute a primitive", "bad_alloc")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in message for words in told)


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") else None
