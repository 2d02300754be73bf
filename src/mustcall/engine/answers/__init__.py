"""Structured answers: what shape one has, how it is asked for, and whether a text is one."""

from mustcall.engine.answers.answering import Answering, answering_for
from mustcall.engine.answers.shapes import AnswerShape, shape_of

__all__ = ["AnswerShape", "Answering", "answering_for", "shape_of"]
