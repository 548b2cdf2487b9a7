(** From the weights to the output of a head (1.2), and what rounding the served weights adds (2.9). *)

From Coq Require Import Reals List Lra Lia Psatz.
From Assay Require Import Sums Softmax Radii.
Import ListNotations.
Open Scope R_scope.

(** The output of a head: the mean of the values; [v t i] is coordinate i of the value of token t. *)
Definition output {I D} (l : list I) (p : I -> R) (v : I -> D -> R) (i : D) : R := Sum l (fun t => p t * v t i).

Section Output.
Context {I D : Type}.
Implicit Types (l : list I) (ds : list D) (p q w rho h : I -> R) (v vh : I -> D -> R).

Lemma norm_scal ds k (x : D -> R) : norm ds (fun i => k * x i) = Rabs k * norm ds x.
Proof.
  unfold norm. rewrite <- (sqrt_Rsqr_abs k), <- sqrt_mult; [|apply Rle_0_sqr|apply dot_self_nonneg].
  f_equal. unfold dot, Rsqr. rewrite <- Sum_scal. apply Sum_ext. intros; ring.
Qed.

Lemma norm_output l ds w v : norm ds (output l w v) <= Sum l (fun t => Rabs (w t) * norm ds (v t)).
Proof.
  unfold output. induction l as [|t l IH].
  - simpl. unfold norm, dot. rewrite (Sum_0 ds) by (intros; ring). rewrite sqrt_0. lra.
  - simpl. apply Rle_trans with (norm ds (vplus (fun i => w t * v t i) (fun i => Sum l (fun s => w s * v s i)))).
    + apply Req_le, norm_ext. reflexivity.
    + apply Rle_trans with (1 := norm_triangle ds _ _). rewrite norm_scal. lra.
Qed.

(** 1.2, with any centre [v0]; v0 = 0 gives the usual form. *)
Theorem output_bound l ds p q v vh (v0 : D -> R) rho (M : R) :
  weights l p -> weights l q ->
  (forall t, In t l -> norm ds (vminus (v t) v0) <= M) ->
  (forall t, In t l -> norm ds (vminus (v t) (vh t)) <= rho t) ->
  norm ds (vminus (output l p v) (output l q vh)) <= 2 * TV l p q * M + Sum l (fun t => q t * rho t).
Proof.
  intros [_ Hp1] [Hq Hq1] HM Hr.
  assert (E : forall i, vminus (output l p v) (output l q vh) i
    = vplus (output l (fun t => p t - q t) (fun t => vminus (v t) v0)) (output l q (fun t => vminus (v t) (vh t))) i).
  { intros i. unfold vminus, vplus, output.
    rewrite <- Sum_minus, <- Sum_plus.
    assert (Z : Sum l (fun t => (p t - q t) * v0 i) = 0).
    { rewrite Sum_scal_r, Sum_minus, Hp1, Hq1. ring. }
    rewrite <- (Rminus_0_r (Sum l (fun t => p t * v t i - q t * vh t i))), <- Z, <- Sum_minus.
    apply Sum_ext. intros; ring. }
  rewrite (norm_ext ds _ _ (fun i _ => E i)).
  apply Rle_trans with (1 := norm_triangle ds _ _). apply Rplus_le_compat.
  - apply Rle_trans with (1 := norm_output l ds _ _). unfold TV.
    replace (2 * (Sum l (fun t => Rabs (p t - q t)) / 2) * M) with (Sum l (fun t => Rabs (p t - q t)) * M) by field.
    rewrite <- Sum_scal_r. apply Sum_le. intros t Ht. apply Rmult_le_compat_l; [apply Rabs_pos|now apply HM].
  - apply Rle_trans with (1 := norm_output l ds _ _). apply Sum_le. intros t Ht. rewrite Rabs_pos_eq by now apply Hq.
    apply Rmult_le_compat_l; [now apply Hq|now apply Hr].
Qed.

(** 2.9: weights served with a relative error of at most [eps] move the output by no more than eps max |v|, as if TV were
    larger by eps / 2.  A weight flushed to zero has relative error one, which is why flushing must be kept out. *)
Theorem served_weights l ds q h v (eps M : R) :
  weights l q -> 0 <= M -> (forall t, In t l -> Rabs (h t) <= eps) -> (forall t, In t l -> norm ds (v t) <= M) ->
  norm ds (vminus (output l (fun t => q t * (1 + h t)) v) (output l q v)) <= 2 * (eps / 2) * M.
Proof.
  intros [Hq Hq1] HM Hh Hv.
  rewrite (norm_ext ds _ (output l (fun t => q t * h t) v)).
  2: { intros i _. unfold vminus, output. rewrite <- Sum_minus. apply Sum_ext. intros; ring. }
  apply Rle_trans with (1 := norm_output l ds _ _).
  replace (2 * (eps / 2) * M) with (Sum l q * (eps * M)) by (rewrite Hq1; field). rewrite <- Sum_scal_r.
  apply Sum_le. intros t Ht. rewrite Rabs_mult, (Rabs_pos_eq (q t)) by now apply Hq.
  rewrite Rmult_assoc. apply Rmult_le_compat_l; [now apply Hq|].
  apply Rmult_le_compat; [apply Rabs_pos|apply norm_nonneg|now apply Hh|now apply Hv].
Qed.

End Output.
