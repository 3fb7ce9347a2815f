"""Train a topic classifier: python run_topics.py --learning_rate 0.02"""

import random

import torch

from arguments import TrainingArguments
from modeling import TopicModel, Topics
from trainer import Trainer


def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def main():
    args = TrainingArguments.parse()
    set_seed(args.seed)
    model = TopicModel()
    trainer = Trainer(model, args, Topics(470, seed=3), Topics(160, seed=4))
    metrics = trainer.train()
    print(f"eval accuracy: {metrics['eval_accuracy']:.4f}")


if __name__ == "__main__":
    main()
