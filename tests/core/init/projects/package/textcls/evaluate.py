import sys

import torch

if __name__ == "__main__":
    state = torch.load(sys.argv[1])
    print(sum(p.numel() for p in state.values()))
