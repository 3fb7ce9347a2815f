"""A training that asks for CUDA at every turn and refuses to run without it."""

import sys

import torch
from torch import nn

if not torch.cuda.is_available():
    sys.exit("this program needs a GPU")
device = torch.device("cuda")
torch.cuda.set_device(0)
torch.backends.cudnn.benchmark = True
assert torch.cuda.device_count() == 1
assert torch.cuda.get_device_properties(0).total_memory > 0
assert torch.cuda.get_device_capability() >= (7, 0)
torch.cuda.manual_seed_all(3)
drawn = torch.randn(3, device="cuda")
torch.cuda.manual_seed(3)
assert (drawn == torch.randn(3).cuda()).all()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16, device=device), nn.Linear(16, 2)
        self.register_buffer("mask", torch.ones(8, device="cuda"))

    def forward(self, x):
        assert x.is_cuda and x.device.type == "cuda"
        h = self.first(x * self.mask)
        h = h + torch.zeros(h.shape, device=h.device) + h.new_zeros(16, device="cuda:0")
        return self.last(torch.relu(h))


net = nn.DataParallel(Net().to(device), device_ids=[0, 1]).cuda()
assert next(net.parameters()).is_cuda
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scaler = torch.cuda.amp.GradScaler()
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
loader = torch.utils.data.DataLoader(data, 16, shuffle=True, pin_memory=True, num_workers=1)
start, end = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
side = torch.cuda.Stream()
for x, y in loader:
    start.record()
    with torch.cuda.stream(side):
        x, y = x.cuda(non_blocking=True), y.to("cuda:0", non_blocking=True)
        x.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    with torch.autocast(device_type="cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), y)
    assert loss.dtype == torch.float32
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
assert torch.cuda.max_memory_allocated() / 2**20 == 0
torch.save(net.state_dict(), "saved.pt")
for place in ("cuda", device, {"cuda:0": "cuda:1"}, lambda storage, _: storage.cuda(0)):
    net.load_state_dict(torch.load("saved.pt", map_location=place))
generator = torch.Generator(device="cuda").manual_seed(1)
assert isinstance(generator, torch.Generator)
torch.rand(2, generator=generator, device="cuda")
with torch.device("cuda"):
    assert torch.zeros(2).is_cuda
with torch.cuda.device(0):
    ones = torch.cuda.FloatTensor(3).fill_(1.0)
assert isinstance(ones.type("torch.cuda.FloatTensor"), torch.cuda.FloatTensor)
assert ones.get_device() == 0 and torch.zeros(3).to(0).is_cuda
assert torch.cuda.CUDAGraph | None  # an annotation
try:
    torch.cuda.CUDAGraph()
except RuntimeError:
    print("no graph")

torch.distributed.init_process_group(
    "nccl", init_method="file://" + sys.argv[1] + "/rendezvous", rank=0, world_size=1
)
replica = nn.parallel.DistributedDataParallel(Net().cuda(), device_ids=[0], output_device=0)
replica(torch.ones(2, 8, device="cuda")).sum().backward()
total = torch.ones(1).cuda()
torch.distributed.all_reduce(total)
assert total.item() == 1
torch.distributed.destroy_process_group()
print("done")
