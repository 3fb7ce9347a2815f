"""Shapes on noisy ground: 14x14 images of six classes, made by code and the same every time."""

import torch
from torch.utils.data import DataLoader, Dataset

SIZE = 14
CLASSES = ("horizontal", "vertical", "cross", "square", "diagonal", "disc")
MEAN, STD = 0.25, 0.45


def draw(kind, y, x, r):
    """One shape with its centre at (y, x) and radius r, as a SIZE x SIZE image of 0 and 1."""
    rows = torch.arange(SIZE)[:, None] - y
    cols = torch.arange(SIZE)[None, :] - x
    inside = (rows.abs() <= r) & (cols.abs() <= r)
    shapes = (
        (rows == 0) & inside,
        (cols == 0) & inside,
        ((rows == 0) | (cols == 0)) & inside,
        ((rows.abs() == r) | (cols.abs() == r)) & inside,
        (rows == cols) & inside,
        rows**2 + cols**2 <= r * r,
    )
    return shapes[kind].float()


def make_images(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(CLASSES), (count,), generator=generator)
    places = torch.randint(5, 9, (count, 2), generator=generator)
    radii = torch.randint(3, 5, (count,), generator=generator)
    images = torch.stack(
        [draw(k, y, x, r) for k, (y, x), r in zip(labels.tolist(), places.tolist(), radii.tolist())]
    )
    images += 0.3 * torch.randn(images.shape, generator=generator)
    return images[:, None], labels


def augment(image):
    """Random crop out of the padded image, random horizontal flip."""
    padded = torch.nn.functional.pad(image, (2, 2, 2, 2))
    top, left = torch.randint(5, (2,)).tolist()
    image = padded[:, top : top + SIZE, left : left + SIZE]
    if torch.rand(()) < 0.5:
        image = image.flip(-1)
    return image


class Shapes(Dataset):
    def __init__(self, count, seed, train):
        self.images, self.labels = make_images(count, seed)
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = (self.images[index] - MEAN) / STD
        if self.train:
            image = augment(image)
        return image, self.labels[index]


def make_loaders(args):
    train = DataLoader(
        Shapes(args.train_size, seed=10, train=True),
        batch_size=args.batch_size,
        shuffle=True,
        pin_memory=True,
    )
    test = DataLoader(Shapes(args.test_size, seed=11, train=False), batch_size=args.test_batch_size)
    return train, test
