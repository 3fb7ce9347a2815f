import torch
from torch.utils.data import Dataset


class Bags(Dataset):
    """Bags of words whose class is that of most of their words."""

    def __init__(self, n, vocab, seed):
        generator = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(n):
            length = int(torch.randint(5, 20, (1,), generator=generator))
            words = torch.randint(1, vocab, (length,), generator=generator)
            label = int((words < vocab // 2).float().mean() > 0.5)
            self.rows.append((words, label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    words = torch.nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True)
    return words, torch.tensor([r[1] for r in rows])
